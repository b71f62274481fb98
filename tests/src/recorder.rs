use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A plugin that writes down how it was called and hands on to the real one.
#[derive(Debug)]
pub struct Recorder {
    log: PathBuf,
}

/// One call: the verb, the container, and CNI_NETNS as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub verb: String,
    pub container_id: String,
    pub netns: String,
}

impl Recorder {
    /// Puts the recording plugin at `place`, in front of `plugin`.
    pub fn install(place: &Path, plugin: &Path) -> Self {
        let log = place.with_extension("calls");
        // One short write to a file opened for appending: calls that overlap stay whole lines.
        let script = format!(
            "#!/bin/sh\nprintf '%s|%s|%s\\n' \"$CNI_COMMAND\" \"$CNI_CONTAINERID\" \
             \"$CNI_NETNS\" >> {}\nexec {}\n",
            log.display(),
            plugin.display()
        );
        fs::write(place, script).unwrap();
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
        Self { log }
    }

    /// Every call so far, in order, without podman's and CRI-O's VERSION.
    pub fn calls(&self) -> Vec<Recorded> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let parse = |line: &str| {
            let mut parts = line.splitn(3, '|').map(str::to_owned);
            let mut next = || parts.next().expect("the script writes three parts");
            Recorded { verb: next(), container_id: next(), netns: next() }
        };
        text.lines().map(parse).filter(|call| call.verb != "VERSION").collect()
    }

    /// The calls for one container.
    pub fn calls_of(&self, container_id: &str) -> Vec<Recorded> {
        self.calls().into_iter().filter(|call| call.container_id == container_id).collect()
    }
}
