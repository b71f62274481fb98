use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The built program beside this test (`target/debug`).
///
/// # Panics
/// When it was not built, or its sources are newer: a test must not judge an old program.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a process has an executable");
    let mut directory = test.parent().expect("an executable lies in a directory");
    if directory.ends_with("deps") {
        directory = directory.parent().expect("`deps` lies in the profile's directory");
    }
    let path = directory.join(name);
    const BUILD: &str = "run `cargo build --workspace --all-targets --all-features` first";
    assert!(path.exists(), "{} was not built: {BUILD}", path.display());
    if let Some(source) = newer_source(&path) {
        panic!("{} is older than {source}: {BUILD}", path.display());
    }
    path
}

/// cargo writes beside each program which sources it was made of: `PROGRAM: SOURCE SOURCE…`.
/// What a build script generated from them lies near the program, and is nobody's source.
fn newer_source(program: &Path) -> Option<String> {
    let modified = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    let (_, sources) = list.lines().next()?.split_once(": ")?;
    let built = modified(program)?;
    let generated = program.parent()?;
    sources
        .split(' ')
        .filter(|source| !Path::new(source).starts_with(generated))
        .find(|source| modified(Path::new(source)).is_some_and(|changed| changed > built))
        .map(str::to_owned)
}
