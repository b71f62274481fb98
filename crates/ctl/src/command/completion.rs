use clap::CommandFactory;
use clap_complete::Shell;

use crate::{arguments::Arguments, exit::Exit, failure::Failure, output::Output};

pub(crate) fn run(shell: Shell, output: &mut Output) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    // Into memory first: the generator panics where it cannot write.
    clap_complete::generate(shell, &mut Arguments::command(), "berthctl", &mut script);
    output.raw(&script)?;
    Ok(Exit::Fine)
}
