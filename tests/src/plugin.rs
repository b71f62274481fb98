use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{Pod, Stopwatch, binary, process::wait_for};

/// The plugin itself gives up an ADD after 110 s.
const LIMIT: Duration = Duration::from_secs(120);

/// CNI_PATH of every call, with the reference plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// The network configuration that most tests use.
pub fn network_config() -> Value {
    json!({"cniVersion": "1.0.0", "name": "berth-test", "type": "berth"})
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StandardOutput {
    #[default]
    Captured,
    /// A pipe whose reader is gone.
    Unread,
    To(PathBuf),
}

/// One call of a CNI plugin: environment and standard input.
#[derive(Debug, Clone)]
pub struct Call {
    program: PathBuf,
    environment: BTreeMap<String, String>,
    /// `None` leaves it open, with nothing to read.
    input: Option<Vec<u8>>,
    output: StandardOutput,
}

impl Call {
    /// With no environment and an input that ends at once.
    pub fn bare() -> Self {
        Self {
            program: binary("berth"),
            environment: BTreeMap::new(),
            input: Some(Vec::new()),
            output: StandardOutput::default(),
        }
    }

    /// `verb` as a runtime calls it for eth0 of `pod`.
    pub fn of(verb: &str, pod: &Pod) -> Self {
        Self::bare()
            .environment("CNI_COMMAND", verb)
            .environment("CNI_CONTAINERID", &pod.id)
            .environment("CNI_NETNS", &pod.netns_text())
            .environment("CNI_IFNAME", "eth0")
            .environment("CNI_PATH", PLUGINS)
            .input(&network_config())
    }

    /// `verb` for the whole network (GC, STATUS), by the version that brought it.
    pub fn network(verb: &str) -> Self {
        let mut config = network_config();
        config["cniVersion"] = json!("1.1.0");
        Self::bare()
            .environment("CNI_COMMAND", verb)
            .environment("CNI_PATH", PLUGINS)
            .input(&config)
    }

    #[must_use]
    pub fn program(mut self, program: &Path) -> Self {
        self.program = program.to_owned();
        self
    }

    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.environment.remove(name);
        self
    }

    #[must_use]
    pub fn input(mut self, config: &Value) -> Self {
        self.input = Some(config.to_string().into_bytes());
        self
    }

    #[must_use]
    pub fn input_text(mut self, text: Option<&str>) -> Self {
        self.input = text.map(|text| text.as_bytes().to_owned());
        self
    }

    #[must_use]
    pub fn output(mut self, output: StandardOutput) -> Self {
        self.output = output;
        self
    }

    /// Of the pod, for the chain: `Call::of(…).pod("shop", "web-0")`.
    #[must_use]
    pub fn pod(self, namespace: &str, name: &str) -> Self {
        let arguments =
            format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}");
        self.environment("CNI_ARGS", &arguments)
    }

    pub fn start(&self) -> Running {
        let mut command = Command::new(&self.program);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(&self.environment);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        match &self.output {
            StandardOutput::Captured => command.stdout(Stdio::piped()),
            StandardOutput::Unread => command.stdout(std::io::pipe().unwrap().1),
            StandardOutput::To(path) => {
                command.stdout(OpenOptions::new().write(true).open(path).unwrap())
            }
        };
        let stopwatch = Stopwatch::start();
        let mut child = command
            .spawn()
            .unwrap_or_else(|err| panic!("cannot run {}: {err}", self.program.display()));
        let mut input = child.stdin.take();
        if let Some(bytes) = &self.input {
            // A plugin that ends without reading all of it is not an error here.
            let _ = input.take().expect("stdin is a pipe").write_all(bytes);
        }
        let stdout = read_all(child.stdout.take());
        let stderr = read_all(child.stderr.take());
        Running { child, _input: input, stdout, stderr, stopwatch }
    }

    /// # Panics
    /// When it has not ended within two minutes.
    pub fn run(&self) -> Answer {
        self.start().finish()
    }
}

fn read_all(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).unwrap();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A call that has not ended yet.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Held where the call leaves standard input open.
    _input: Option<std::process::ChildStdin>,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
    stopwatch: Stopwatch,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, as a runtime does at its deadline.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits until the plugin has ended.
    pub fn finish(mut self) -> Answer {
        let Some(status) = wait_for(&mut self.child, LIMIT) else {
            self.kill();
            panic!("the plugin has not ended within {LIMIT:?}");
        };
        let took = self.stopwatch.elapsed();
        Answer {
            code: status.code(),
            signal: status.signal(),
            stdout: self.stdout.join().unwrap(),
            stderr: self.stderr.join().unwrap(),
            took,
        }
    }
}

/// What a plugin said and how it ended.
#[derive(Debug, Clone)]
pub struct Answer {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Answer {
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// The one JSON object on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|err| panic!("stdout is not one JSON object ({err}): {self:?}"))
    }

    /// The result of an ADD that must have succeeded.
    #[track_caller]
    pub fn result(&self) -> Value {
        assert!(self.succeeded(), "{self:?}");
        self.json()
    }

    /// Success with nothing to say.
    #[track_caller]
    pub fn nothing(&self) {
        assert!(self.succeeded() && self.stdout.is_empty(), "{self:?}");
    }

    /// `code` of the error object that it must have failed with.
    #[track_caller]
    pub fn error_code(&self) -> u64 {
        assert!(self.code.is_some_and(|code| code != 0), "{self:?}");
        let error = self.json();
        error["code"].as_u64().unwrap_or_else(|| panic!("no code in {error}"))
    }

    /// `msg` and `details` of the error object, as a runtime shows them.
    #[track_caller]
    pub fn error_text(&self) -> String {
        self.error_code();
        let error = self.json();
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        format!("{}; {}", text("msg"), text("details"))
    }
}
