//! What the daemon reads, for the fuzzer in `tests/fuzz`. Each function panics where something
//! does not hold.

use std::time::Duration;

use berth_proto::v1;

use crate::{LoadedConfig, config::Environment, rpc, spool};

pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(loaded) = LoadedConfig::parse(text, &Environment::default()) else { return };
    let config = &loaded.config;
    assert!(config.min_idle <= config.max_idle && !config.pod_cidrs.is_empty());
    assert!(config.socket.is_absolute() && config.state_directory.is_absolute());
    // What is in force says the same when it is read as a file.
    let again = LoadedConfig::parse(&loaded.effective.to_string(), &Environment::default());
    assert_eq!(again.expect("a configuration").effective, loaded.effective);
}

pub fn spool_file(bytes: &[u8]) {
    let Ok(release) = spool::parse(bytes) else { return };
    let written = serde_json::to_vec(&release).expect("a release is a document");
    // A reason may grow by its escapes, and with it over the limit.
    if let Ok(again) = spool::parse(&written) {
        assert_eq!(again, release);
    }
}

pub fn allocate(request: v1::AllocIpRequest) {
    rpc::fuzz_allocate(request);
}

pub fn gc(request: v1::RunGcRequest) {
    rpc::fuzz_gc(request);
}

/// The `grpc-timeout` header.
pub fn timeout(text: &str) {
    if let Some(limit) = rpc::parse_timeout(text) {
        assert!(limit <= Duration::from_secs(99_999_999 * 3600));
    }
}
