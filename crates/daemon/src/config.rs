//! The configuration file as written, then the settings as checked.

mod file;

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use berth_cloud::local::LocalAddresses;
use berth_types::{HostPrefix, InvalidId};
use ipnet::IpNet;
use serde_json::Value;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use file::{File, IpStack, LogFormat};

/// What is in force.
#[derive(Debug, Clone)]
pub struct Config {
    pub socket: PathBuf,
    pub state_directory: PathBuf,
    pub log: Log,
    pub pod_cidrs: Vec<IpNet>,
    pub excluded: Vec<IpNet>,
    pub masquerade: bool,
    /// `None`: the uplink's.
    pub mtu: Option<u32>,
    pub host_prefix: HostPrefix,
    pub min_idle: usize,
    pub max_idle: usize,
    pub warm_up: usize,
    pub cool_down: Duration,
    pub gc_interval: Duration,
    pub gc_grace: Duration,
    pub stop_grace: Duration,
    /// Where the conflist goes; `None` writes none.
    pub conflist: Option<PathBuf>,
    /// What to write there instead of the built-in one.
    pub conflist_source: Option<PathBuf>,
    /// Neither `ip_stack` nor `pod_cidrs` was given, so a kernel without IPv6 means IPv4 only.
    pub families_by_default: bool,
}

#[derive(Debug, Clone)]
pub struct Log {
    /// A tracing filter, such as `info,berth_core=debug`.
    pub level: String,
    pub json: bool,
}

/// The configuration with its origin.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// As JSON, every value in force.
    pub effective: Value,
    /// Field path to `default`, `file` or `environment`.
    pub sources: BTreeMap<String, &'static str>,
}

/// The variables that override paths and the log level.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub socket: Option<String>,
    pub state_directory: Option<String>,
    pub log: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path:?}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the configuration is not JSON")]
    Syntax(#[source] serde_json::Error),
    #[error("{path:?} is not a configuration")]
    File { path: PathBuf, source: Box<ConfigError> },
    /// serde names what is allowed for unknown fields and wrong types.
    #[error("`{path}`: {problem}")]
    Field { path: String, problem: String },
}

impl ConfigError {
    fn field(path: &str, problem: impl std::fmt::Display) -> Self {
        Self::Field { path: path.to_owned(), problem: problem.to_string() }
    }
}

impl Environment {
    pub fn of_process() -> Self {
        let get = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        Self {
            socket: get("BERTH_SOCKET"),
            state_directory: get("BERTH_STATE_DIR"),
            log: get("BERTH_LOG"),
        }
    }
}

impl Loaded {
    /// The file at `path`; without one, the defaults. The environment goes last.
    pub fn load(path: Option<PathBuf>, environment: &Environment) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Self::parse("{}", environment) };
        match read_text(&path) {
            Err(source) => Err(ConfigError::Read { path, source }),
            Ok(text) => Self::parse(&text, environment)
                .map_err(|source| ConfigError::File { path, source: Box::new(source) }),
        }
    }

    pub fn parse(text: &str, environment: &Environment) -> Result<Self, ConfigError> {
        let document: Value = serde_json::from_str(text).map_err(ConfigError::Syntax)?;
        if !document.is_object() {
            return Err(ConfigError::field("", "the configuration is a JSON object"));
        }
        let mut file: File = serde_path_to_error::deserialize(&document)
            .map_err(|err| ConfigError::field(&err.path().to_string(), err.inner()))?;
        let mut sources = BTreeMap::new();
        let overrides = [
            ("socket", &environment.socket),
            ("state_dir", &environment.state_directory),
            ("log.level", &environment.log),
        ];
        for (field, value) in overrides {
            let Some(value) = value else { continue };
            sources.insert(field.to_owned(), "environment");
            match field {
                "socket" => file.socket = value.into(),
                "state_dir" => file.state_dir = value.into(),
                _ => value.clone_into(&mut file.log.level),
            }
        }
        let families_by_default = file.ip_stack.is_none() && file.pod_cidrs.is_none();
        let config = check(&mut file, families_by_default)?;
        let effective = serde_json::to_value(&file).map_err(ConfigError::Syntax)?;
        note_sources("", &effective, &document, &mut sources);
        Ok(Self { config, effective, sources })
    }
}

/// Larger than any configuration or network list; a device or a log named by mistake has no end.
const LARGEST_FILE: u64 = 1024 * 1024;

/// The text of a file that a person wrote.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_FILE {
        let problem = format!("it is longer than {LARGEST_FILE} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(text)
}

/// Every leaf that the document has is from the file; the rest are defaults.
fn note_sources(
    prefix: &str,
    effective: &Value,
    document: &Value,
    sources: &mut BTreeMap<String, &'static str>,
) {
    let Value::Object(fields) = effective else { return };
    for (name, value) in fields {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let written = document.get(name);
        if value.is_object() {
            note_sources(&path, value, written.unwrap_or(&Value::Null), sources);
        } else {
            let source = if written.is_some() { "file" } else { "default" };
            sources.entry(path).or_insert(source);
        }
    }
}

/// The least MTU: RFC 791 for IPv4, RFC 8200 section 5 for IPv6.
const LEAST_MTU: (u32, u32) = (68, 1280);

/// Taken apart without `..`, so that a field that is parsed and then forgotten does not compile
/// unnoticed. Fills in what follows from other fields.
fn check(file: &mut File, families_by_default: bool) -> Result<Config, ConfigError> {
    let stack = file.ip_stack.unwrap_or_else(|| IpStack::of(file.pod_cidrs.as_deref()));
    file.ip_stack = Some(stack);
    let pod_cidrs = pod_cidrs(stack, file.pod_cidrs.take())?;
    file.pod_cidrs = Some(pod_cidrs.clone());
    let File {
        version,
        daemon_mode,
        ip_stack: _,
        pod_cidrs: _,
        exclude,
        masquerade,
        mtu,
        host_prefix,
        min_pool_size,
        max_pool_size,
        ip_warm_up_size,
        cool_down,
        gc_interval,
        gc_grace,
        socket,
        state_dir,
        cni_conf,
        log,
        stop_grace,
    } = file;
    if !is_log_filter(&log.level) {
        let problem = format!(
            "{:?}; allowed: off, error, warn, info, debug or trace, or a filter such as \
             info,berth_core=debug",
            log.level
        );
        return Err(ConfigError::field("log.level", problem));
    }
    if version != "1" {
        return Err(ConfigError::field(
            "version",
            format!("{version:?} is not known; allowed: \"1\""),
        ));
    }
    match daemon_mode.as_str() {
        "VPC" => (),
        "ENIMultiIP" | "ENIOnly" => {
            let problem =
                format!("{daemon_mode:?} is not built yet, it comes in stage 2; allowed: \"VPC\"");
            return Err(ConfigError::field("daemon_mode", problem));
        }
        other => {
            return Err(ConfigError::field(
                "daemon_mode",
                format!("{other:?} is not a mode; allowed: \"VPC\""),
            ));
        }
    }
    if min_pool_size > max_pool_size {
        let problem =
            format!("{min_pool_size} is more than max_pool_size, which is {max_pool_size}");
        return Err(ConfigError::field("min_pool_size", problem));
    }
    let least = if stack.has_v6() { LEAST_MTU.1 } else { LEAST_MTU.0 };
    if *mtu != 0 && !(least..=65_535).contains(mtu) {
        let problem = format!("{mtu} bytes; allowed: 0 for the uplink's, or {least} to 65535");
        return Err(ConfigError::field("mtu", problem));
    }
    let paths = [
        ("socket", Some(&*socket)),
        ("state_dir", Some(&*state_dir)),
        ("cni_conf.path", Some(&cni_conf.path)),
        ("cni_conf.source", cni_conf.source.as_ref()),
    ];
    for (field, path) in paths {
        if path.is_some_and(|path| path.as_os_str().as_encoded_bytes().contains(&0)) {
            return Err(ConfigError::field(field, "a NUL byte is in no path"));
        }
    }
    if !socket.is_absolute() || !state_dir.is_absolute() {
        let field = if socket.is_absolute() { "state_dir" } else { "socket" };
        return Err(ConfigError::field(field, "an absolute path is needed"));
    }
    // sun_path of unix(7) has 108 bytes with its terminator.
    if socket.as_os_str().len() > 107 {
        return Err(ConfigError::field(
            "socket",
            "longer than the 107 bytes that a socket path may have",
        ));
    }
    if gc_interval.0 < Duration::from_secs(1) {
        return Err(ConfigError::field("gc_interval", "less than 1s"));
    }
    let excluded = exclude
        .iter()
        .map(|text| file::net_or_address(text).map_err(|err| ConfigError::field("exclude", err)))
        .collect::<Result<Vec<IpNet>, _>>()?;
    if let Some(outside) = excluded.iter().find(|it| is_outside(it, &pod_cidrs)) {
        return Err(ConfigError::field("exclude", format!("{outside} is in no pod CIDR")));
    }
    LocalAddresses::new(&pod_cidrs, &excluded)
        .map_err(|err| ConfigError::field("pod_cidrs", err))?;
    Ok(Config {
        socket: socket.clone(),
        state_directory: state_dir.clone(),
        log: Log { level: log.level.clone(), json: log.format == LogFormat::Json },
        pod_cidrs,
        excluded,
        masquerade: *masquerade,
        mtu: (*mtu != 0).then_some(*mtu),
        host_prefix: host_prefix
            .parse()
            .map_err(|err: InvalidId| ConfigError::field("host_prefix", err))?,
        min_idle: *min_pool_size,
        max_idle: *max_pool_size,
        warm_up: *ip_warm_up_size,
        cool_down: cool_down.0,
        gc_interval: gc_interval.0,
        gc_grace: gc_grace.0,
        stop_grace: stop_grace.0,
        conflist: (!cni_conf.path.as_os_str().is_empty()).then(|| cni_conf.path.clone()),
        conflist_source: cni_conf.source.clone(),
        families_by_default,
    })
}

/// Whether nothing would be excluded by it. What is of a family that the node does not give out
/// may stand there.
fn is_outside(excluded: &IpNet, pod_cidrs: &[IpNet]) -> bool {
    let same_family = |cidr: &&IpNet| cidr.addr().is_ipv4() == excluded.addr().is_ipv4();
    let mut of_family = pod_cidrs.iter().filter(same_family).peekable();
    of_family.peek().is_some()
        && !of_family.any(|cidr| cidr.contains(excluded) || excluded.contains(cidr))
}

/// A mistyped level would be taken for a module's name, and nothing would be logged.
fn is_log_filter(text: &str) -> bool {
    let has_level = |directive: &str| {
        let level = directive.rsplit('=').next().unwrap_or_default();
        level.parse::<LevelFilter>().is_ok()
    };
    text.split(',').all(has_level) && EnvFilter::try_new(text).is_ok()
}

fn pod_cidrs(stack: IpStack, given: Option<Vec<IpNet>>) -> Result<Vec<IpNet>, ConfigError> {
    let Some(given) = given else { return Ok(stack.default_cidrs()) };
    for cidr in &given {
        if cidr.addr() != cidr.network() {
            let problem = format!("{cidr} has host bits set; {} is meant", cidr.trunc());
            return Err(ConfigError::field("pod_cidrs", problem));
        }
    }
    let wanted: Vec<IpNet> = given.into_iter().filter(|cidr| stack.has(cidr)).collect();
    for (has, name) in [(stack.has_v4(), "IPv4"), (stack.has_v6(), "IPv6")] {
        if has && !wanted.iter().any(|cidr| cidr.addr().is_ipv4() == (name == "IPv4")) {
            let problem = format!("no {name} prefix is given, and ip_stack is {:?}", stack.name());
            return Err(ConfigError::field("pod_cidrs", problem));
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests;
