use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

/// The one way to stdout.
pub(crate) struct Output {
    format: Format,
    to: Box<dyn Write>,
}

impl Output {
    pub(crate) fn stdout(format: Format) -> Self {
        Self { format, to: Box::new(io::stdout().lock()) }
    }

    /// One answer: `view` for tools, or what `table` draws of it for people.
    pub(crate) fn show<V: Serialize>(
        &mut self,
        view: &V,
        table: impl FnOnce(&V) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => self.raw(table(view).as_bytes()),
            Format::Json => {
                let json = serde_json::to_string_pretty(view).map_err(io::Error::from);
                self.raw((json.map_err(Failure::Output)? + "\n").as_bytes())
            }
        }
    }

    /// One of a stream of answers: a line each, in both formats.
    pub(crate) fn show_line<V: Serialize>(
        &mut self,
        view: &V,
        line: impl FnOnce(&V) -> String,
    ) -> Result<(), Failure> {
        let text = match self.format {
            Format::Table => line(view),
            Format::Json => {
                serde_json::to_string(view).map_err(|err| Failure::Output(err.into()))?
            }
        };
        self.raw((text + "\n").as_bytes())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to.write_all(bytes).and_then(|()| self.to.flush()).map_err(Failure::Output)
    }
}
