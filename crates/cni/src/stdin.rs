//! Standard input that does not wait for ever.

use std::{
    io::{self, Read},
    os::fd::AsFd,
    time::Duration,
};

use berth_types::BootTime;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock;

/// A runtime writes its few kilobytes and closes. One that has not by then never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// Larger than any configuration: the GC list of a node with 10,000 pods is some 1.2 MB.
pub(crate) const MOST_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Patient {
    until: BootTime,
}

impl Patient {
    pub(crate) fn new() -> Self {
        Self { until: clock::now() + PATIENCE }
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let stdin = io::stdin();
        let left = self.until.since(clock::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, timeout)? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it was not closed within {} s", PATIENCE.as_secs()),
            ));
        }
        stdin.lock().read(buffer)
    }
}
