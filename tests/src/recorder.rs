use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::unistd::Pid;

use crate::process::{is_alive, kill_with_children};

/// A plugin that writes down how it was called and hands on to the real one, unless the test has
/// something in its [`way`](Recorder::before).
#[derive(Debug)]
pub struct Recorder {
    place: PathBuf,
}

/// One call: the verb, the container, CNI_NETNS as it was given, and the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub verb: String,
    pub container_id: String,
    pub netns: String,
    pub pid: i32,
}

impl Recorded {
    pub fn is_running(&self) -> bool {
        is_alive(self.pid)
    }

    /// SIGKILL, as a runtime does at its deadline.
    pub fn kill(&self) {
        kill_with_children(&[Pid::from_raw(self.pid)]);
    }
}

impl Recorder {
    /// Puts the recording plugin at `place`, in front of `plugin`.
    pub fn install(place: &Path, plugin: &Path) -> Self {
        let this = Self { place: place.to_owned() };
        // One short write to a file opened for appending: calls that overlap stay whole lines.
        let script = format!(
            "#!/bin/sh\nprintf '%s|%s|%s|%s\\n' \"$CNI_COMMAND\" \"$CNI_CONTAINERID\" \
             \"$CNI_NETNS\" $$ >> {log}\n\
             [ -f {place}.$CNI_COMMAND ] && . {place}.$CNI_COMMAND\n\
             exec {plugin}\n",
            log = this.log().display(),
            place = place.display(),
            plugin = plugin.display()
        );
        fs::write(place, script).unwrap();
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
        this
    }

    fn log(&self) -> PathBuf {
        self.place.with_extension("calls")
    }

    fn way(&self, verb: &str) -> PathBuf {
        self.place.with_extension(verb)
    }

    /// From now on every call of `verb` runs this piece of shell before the plugin, or instead of
    /// it where it ends with `exit`.
    #[expect(
        clippy::disallowed_methods,
        reason = "whole for whoever reads it, and of no worth later"
    )]
    pub fn before(&self, verb: &str, shell: &str) {
        // Never half of it: a call may come at any time.
        let draft = self.place.with_extension("draft");
        fs::write(&draft, shell).unwrap();
        fs::rename(draft, self.way(verb)).unwrap();
    }

    /// From now on every call of `verb` waits at a fail point of the plugin.
    pub fn rest_at(&self, verb: &str, point: &str, milliseconds: u32) {
        self.before(verb, &format!("export FAILPOINTS='{point}=sleep({milliseconds})'\n"));
    }

    /// From now on every call of `verb` fails with an error object.
    pub fn fail(&self, verb: &str, message: &str) {
        let error = format!(r#"{{"cniVersion":"1.0.0","code":100,"msg":"{message}"}}"#);
        self.before(verb, &format!("echo '{error}'\nexit 1\n"));
    }

    /// From now on calls of `verb` go to the plugin as they come.
    pub fn as_usual(&self, verb: &str) {
        fs::remove_file(self.way(verb)).unwrap();
    }

    /// Every call so far, in order, without podman's and CRI-O's VERSION.
    pub fn calls(&self) -> Vec<Recorded> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let parse = |line: &str| {
            let mut parts = line.splitn(4, '|');
            let mut next = || parts.next().expect("the script writes four parts").to_owned();
            let (verb, container_id, netns) = (next(), next(), next());
            Recorded { verb, container_id, netns, pid: next().parse().unwrap() }
        };
        text.lines().map(parse).filter(|call| call.verb != "VERSION").collect()
    }

    /// The calls for one container.
    pub fn calls_of(&self, container_id: &str) -> Vec<Recorded> {
        self.calls().into_iter().filter(|call| call.container_id == container_id).collect()
    }

    /// The verbs for one container, each with whether a namespace was named.
    pub fn verbs_of(&self, container_id: &str) -> Vec<(String, bool)> {
        let calls = self.calls_of(container_id);
        calls.into_iter().map(|call| (call.verb, !call.netns.is_empty())).collect()
    }
}
