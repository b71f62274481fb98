use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{Usage, binary, process::wait_for};

/// A debug build under a full machine starts in well under this.
const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(40);

/// A running `berthd`. It is killed where it is dropped, so that none outlives its test.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts it and returns without waiting for it to serve.
    pub(crate) fn spawn(
        config: &Path,
        socket: &Path,
        log: &Path,
        environment: &[(&str, &str)],
    ) -> Self {
        let output = File::options().create(true).append(true).open(log).unwrap();
        let child = Command::new(binary("berthd"))
            .arg("--config")
            .arg(config)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .expect("berthd was built");
        Self { child, socket: socket.to_owned(), log: log.to_owned() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn usage(&self) -> Usage {
        Usage::of(self.pid())
    }

    /// Waits until it says over gRPC that it serves.
    ///
    /// # Panics
    /// When it ends before, or has not said so within half a minute; with its log.
    #[track_caller]
    pub fn wait_until_it_serves(&mut self) {
        let stopwatch = crate::Stopwatch::start();
        while !is_serving(&self.socket) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("berthd ended with {status} before it served:\n{}", self.log());
            }
            assert!(stopwatch.elapsed() < START, "berthd does not serve:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for it to end by itself.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        wait_for(&mut self.child, STOP)
            .unwrap_or_else(|| panic!("berthd does not end:\n{}", self.log()))
    }

    /// SIGTERM, and waits.
    #[track_caller]
    pub fn stop(mut self) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a pid is positive"));
        kill(pid, Signal::SIGTERM).unwrap();
        self.wait()
    }

    /// SIGKILL: it can say and write nothing more.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The end of what it has logged.
    fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("berthd's log:\n{}", self.log());
        }
    }
}

/// A channel to the daemon's socket, and a runtime to use it on.
pub(crate) fn ask<T, Fut>(socket: &Path, question: impl FnOnce(Channel) -> Fut) -> Result<T, String>
where
    Fut: Future<Output = Result<T, tonic::Status>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
            .map_err(|err| err.to_string())?
            .connect_timeout(Duration::from_secs(1))
            .timeout(Duration::from_secs(60));
        let channel = endpoint.connect().await.map_err(|err| err.to_string())?;
        question(channel).await.map_err(|status| status.to_string())
    })
}

fn is_serving(socket: &Path) -> bool {
    let health = ask(socket, async |channel| {
        HealthClient::new(channel).check(HealthCheckRequest::default()).await
    });
    health.is_ok_and(|reply| reply.into_inner().status() == ServingStatus::Serving)
}
