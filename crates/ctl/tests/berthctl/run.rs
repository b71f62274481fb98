use std::{
    path::Path,
    process::{Command, Output},
};

/// What a command left behind.
pub(crate) struct Outcome {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().expect("berthctl is not killed by a signal"),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

/// `berthctl` that asks at `socket`, deaf to the environment of whoever runs the tests.
pub(crate) fn command(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berthctl"));
    command.env_clear().arg("--socket").arg(socket);
    command
}

/// Runs `berthctl` with these words.
pub(crate) fn berthctl(socket: &Path, words: &str) -> Outcome {
    command(socket).args(words.split_whitespace()).output().expect("berthctl starts").into()
}

/// The same, and it must succeed and say nothing on stderr.
#[track_caller]
pub(crate) fn fine(socket: &Path, words: &str) -> String {
    let outcome = berthctl(socket, words);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "berthctl {words}");
    outcome.stdout
}
