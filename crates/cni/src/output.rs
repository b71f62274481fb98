//! The two streams: the document on stdout, everything else on stderr.

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    error::CniError,
    verb::{SpecVersion, Verb},
};

/// Writes the whole document. A full or closed stdout is an error: the runtime did not get it.
pub(crate) fn document(document: &impl Serialize) -> Result<(), CniError> {
    let mut text = serde_json::to_vec(document).map_err(|err| CniError::Stdout(err.into()))?;
    text.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&text).and_then(|()| stdout.flush()).map_err(CniError::Stdout)
}

/// For whoever reads the runtime's log. Nobody reading is no error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "berth: {text}");
}

/// What a person sees who runs the plugin by hand.
pub(crate) fn about() {
    let versions = SpecVersion::ALL.map(SpecVersion::as_str).join(", ");
    let verbs = Verb::ALL.map(Verb::as_str).join(", ");
    let _ = writeln!(
        io::stderr(),
        "berth {}: CNI plugin of the Berth IPAM daemon, run by a container runtime\n\
         CNI versions: {versions}\nCNI_COMMAND: {verbs}",
        env!("CARGO_PKG_VERSION"),
    );
}
