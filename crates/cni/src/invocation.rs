//! One execution of the plugin, parsed whole before anything is done.

use std::{ffi::OsString, io::Read, path::PathBuf, time::Duration};

use berth_types::{AttachmentKey, HostPrefix, NetworkName};

use crate::{
    cni_args::CniArgs,
    config::{self, Config, Document},
    error::{CniError, Failure},
    previous::PreviousResult,
    variables::Variables,
    verb::{SpecVersion, Verb},
    wishes::Wishes,
};

#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) verb: Verb,
    /// The version that everything printed is in.
    pub(crate) version: SpecVersion,
    pub(crate) command: Command,
}

/// Each command carries what its verb needs and no more.
#[derive(Debug)]
pub(crate) enum Command {
    /// Somebody ran the binary by hand.
    About,
    Version(SpecVersion),
    Add(Box<Add>),
    Del(Del),
    Check(Box<Check>),
    Gc(Gc),
    Status(Status),
    /// What is asked is so already.
    Nothing {
        why: &'static str,
    },
}

#[derive(Debug)]
pub(crate) struct Add {
    pub(crate) version: SpecVersion,
    pub(crate) key: AttachmentKey,
    /// CNI_NETNS letter by letter: it comes back as `sandbox`, and others compare the text.
    pub(crate) netns: String,
    pub(crate) wishes: Wishes,
    pub(crate) previous: PreviousResult,
    pub(crate) socket: PathBuf,
    /// For the release of an address whose ADD failed with the daemon.
    pub(crate) away: WhenAway,
    pub(crate) timeout: Duration,
}

#[derive(Debug)]
pub(crate) struct Del {
    pub(crate) key: AttachmentKey,
    pub(crate) socket: PathBuf,
    pub(crate) away: WhenAway,
}

/// Where a release goes when the daemon is away.
#[derive(Debug)]
pub(crate) struct WhenAway {
    pub(crate) spool_dir: PathBuf,
    pub(crate) host_prefix: HostPrefix,
}

#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) key: AttachmentKey,
    pub(crate) netns: String,
    pub(crate) previous: PreviousResult,
    pub(crate) socket: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Gc {
    pub(crate) network: NetworkName,
    pub(crate) valid: Vec<AttachmentKey>,
    pub(crate) socket: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) socket: PathBuf,
    pub(crate) grace: Duration,
}

impl Invocation {
    /// `env` and `stdin` are parameters so that tests need not touch the process's own.
    pub(crate) fn read(
        env: impl Fn(&str) -> Option<OsString>,
        stdin: impl Read,
    ) -> Result<Self, Failure> {
        let variables = Variables(env);
        // Until a verb is known it is none whose errors need care.
        let unknown = |error| Failure { verb: Verb::Version, version: SpecVersion::NEWEST, error };
        let Some(text) = variables.get("CNI_COMMAND").map_err(unknown)? else {
            return Ok(Self {
                verb: Verb::Version,
                version: SpecVersion::NEWEST,
                command: Command::About,
            });
        };
        let Some(verb) = Verb::parse(&text) else {
            return Err(unknown(CniError::Command(text.chars().take(64).collect())));
        };
        let document = Document::read(stdin);
        let asked = document.as_ref().ok().and_then(Document::version);
        let version = asked.unwrap_or(SpecVersion::NEWEST);
        if verb == Verb::Version {
            // The answer does not depend on the question: what cannot be read is no error.
            return Ok(Self { verb, version, command: Command::Version(version) });
        }
        let command = variables
            .require(verb)
            .and(document)
            .and_then(|document| document.parse(verb))
            .and_then(|config| command(verb, version, &variables, config));
        match command {
            Ok(command) => Ok(Self { verb, version, command }),
            Err(error) => Err(Failure { verb, version, error }),
        }
    }
}

fn command<F: Fn(&str) -> Option<OsString>>(
    verb: Verb,
    version: SpecVersion,
    variables: &Variables<F>,
    config: Config,
) -> Result<Command, CniError> {
    match verb {
        Verb::Version => Ok(Command::Version(version)),
        Verb::Add => {
            let key = key(variables, &config)?;
            let cni_args = CniArgs::parse(&variables.get("CNI_ARGS")?.unwrap_or_default())?;
            // Of no use to ADD, but a mistake there should not show first when STATUS needs it.
            config.settings.status_grace()?;
            Ok(Command::Add(Box::new(Add {
                version,
                key,
                netns: variables.required("CNI_NETNS")?,
                wishes: Wishes::of(&config, cni_args)?,
                socket: config.settings.socket()?,
                away: WhenAway::of(&config)?,
                timeout: config.settings.add_timeout()?,
                previous: PreviousResult::parse(config.previous)?,
            })))
        }
        Verb::Del => match key(variables, &config) {
            Ok(key) => Ok(Command::Del(Del {
                key,
                socket: config.settings.socket()?,
                away: WhenAway::of(&config)?,
            })),
            // libcni checks these on ADD only: whatever comes here now was refused there.
            Err(CniError::Variable { .. }) => {
                Ok(Command::Nothing { why: "DEL of what cannot be a key: it holds nothing" })
            }
            Err(err) => Err(err),
        },
        Verb::Check => {
            if config.previous.is_null() {
                return Err(CniError::NoPreviousResult);
            }
            Ok(Command::Check(Box::new(Check {
                key: key(variables, &config)?,
                netns: variables.required("CNI_NETNS")?,
                socket: config.settings.socket()?,
                previous: PreviousResult::parse(config.previous)?,
            })))
        }
        Verb::Gc => match config::valid_attachments(&config)? {
            Some(valid) => Ok(Command::Gc(Gc {
                valid,
                socket: config.settings.socket()?,
                network: config.network,
            })),
            None => Ok(Command::Nothing {
                why: "GC without cni.dev/valid-attachments: nothing is changed",
            }),
        },
        Verb::Status => Ok(Command::Status(Status {
            socket: config.settings.socket()?,
            grace: config.settings.status_grace()?,
        })),
    }
}

impl WhenAway {
    fn of(config: &Config) -> Result<Self, CniError> {
        let settings = &config.settings;
        Ok(Self { spool_dir: settings.spool_dir()?, host_prefix: settings.host_prefix()? })
    }
}

fn key<F: Fn(&str) -> Option<OsString>>(
    variables: &Variables<F>,
    config: &Config,
) -> Result<AttachmentKey, CniError> {
    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        name: &'static str,
        text: &str,
    ) -> Result<T, CniError> {
        text.parse().map_err(|err: T::Err| CniError::Variable { name, problem: err.to_string() })
    }
    let container = variables.required("CNI_CONTAINERID")?;
    let interface = variables.required("CNI_IFNAME")?;
    Ok(AttachmentKey {
        network: config.network.clone(),
        container_id: parsed("CNI_CONTAINERID", &container)?,
        interface: parsed("CNI_IFNAME", &interface)?,
    })
}

#[cfg(test)]
mod tests;
