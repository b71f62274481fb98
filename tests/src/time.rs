use std::{fmt::Display, thread, time::Duration};

/// Real time that has passed.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "end-to-end tests measure real time")]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Looks again every 20 ms until `look` is satisfied.
///
/// # Panics
/// When it is not within `limit`, with what it last complained of.
#[track_caller]
pub fn eventually<T, E: Display>(limit: Duration, mut look: impl FnMut() -> Result<T, E>) -> T {
    let stopwatch = Stopwatch::start();
    loop {
        match look() {
            Ok(value) => return value,
            Err(err) if stopwatch.elapsed() > limit => panic!("not within {limit:?}: {err}"),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}
