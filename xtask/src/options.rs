//! `--name value` after a verb.

use std::{collections::BTreeMap, str::FromStr};

use anyhow::{Context, Result, bail};

#[derive(Debug)]
pub(crate) struct Options<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Options<'a> {
    /// Refuses what is not in `known`.
    pub(crate) fn of(arguments: &[&'a str], known: &[&str]) -> Result<Self> {
        let mut options = BTreeMap::new();
        for pair in arguments.chunks(2) {
            match *pair {
                [name, value] if known.contains(&name) => options.insert(name, value),
                [name] if known.contains(&name) => bail!("{name} needs a value"),
                [name, ..] => bail!("{name} is not known; there is {}", known.join(", ")),
                [] => unreachable!("chunks are never empty"),
            };
        }
        Ok(Self(options))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T>
    where
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        match self.text(name) {
            Some(text) => text.parse().with_context(|| format!("{name}: {text:?}")),
            None => Ok(default),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_has_its_value_or_is_refused_by_name() {
        let known = ["--cuts", "--file-system"];
        let options = Options::of(&["--cuts", "7"], &known).unwrap();
        assert_eq!(
            (options.number("--cuts", 1).unwrap(), options.text("--file-system")),
            (7, None)
        );
        assert_eq!(Options::of(&[], &known).unwrap().number("--cuts", 3).unwrap(), 3);
        for (bad, told) in [(&["--cut", "7"][..], "--cut is not known"), (&["--cuts"], "a value")] {
            let err = Options::of(bad, &known).unwrap_err().to_string();
            assert!(err.contains(told), "{err}");
        }
        assert!(Options::of(&["--cuts", "x"], &known).unwrap().number("--cuts", 1).is_err());
    }
}
