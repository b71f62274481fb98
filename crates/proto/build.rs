//! Generates the wire code. protox parses the files in Rust, so a build needs no `protoc`.

use std::{env, fs, path::PathBuf};

use prost::Message;

const FILES: &[&str] = &[
    "berth/v1/common.proto",
    "berth/v1/ipam.proto",
    "berth/v1/inspect.proto",
    "berth/v1/admin.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../../proto");
    let files = protox::compile(FILES, ["../../proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("berth.v1.bin"), files.encode_to_vec())?;
    let has = |feature: &str| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    tonic_prost_build::configure()
        .build_server(has("SERVER"))
        .build_client(has("CLIENT"))
        .build_transport(has("CLIENT"))
        .compile_fds(files)?;
    Ok(())
}
