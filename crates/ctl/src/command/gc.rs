use berth_proto::v1;
use serde::Serialize;

use super::key::KeyView;
use crate::{
    arguments::Gc, daemon::Daemon, exit::Exit, failure::Failure, output::Output, table::table,
};

#[derive(Debug, Serialize)]
struct FindingView {
    #[serde(flatten)]
    key: KeyView,
    /// With `dry_run`: whether it would be.
    collected: bool,
    evidence: Vec<String>,
}

/// `gc -o json`.
#[derive(Debug, Serialize)]
struct GcView {
    dry_run: bool,
    findings: Vec<FindingView>,
}

pub(super) async fn run(
    daemon: &Daemon,
    arguments: &Gc,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let dry_run = arguments.dry_run;
    let request = v1::RunGcRequest { dry_run, runtime: None };
    let reply = daemon.ask(daemon.admin().run_gc(request)).await?;
    let findings = reply
        .findings
        .into_iter()
        .map(|finding| FindingView {
            key: finding.key.into(),
            collected: finding.collected,
            evidence: finding.evidence,
        })
        .collect();
    output.show(&GcView { dry_run, findings }, draw)?;
    Ok(Exit::Fine)
}

fn draw(view: &GcView) -> String {
    let verdict = if view.dry_run { "would collect" } else { "collected" };
    let collected = view.findings.iter().filter(|finding| finding.collected).count();
    let kept = view.findings.len() - collected;
    let count = format!("{verdict} {collected}, kept {kept}\n");
    if view.findings.is_empty() {
        return count;
    }
    let rows = table(
        ["VERDICT", "CONTAINER", "IF", "NETWORK", "EVIDENCE"],
        view.findings.iter().map(|finding| {
            [
                if finding.collected { verdict.replace(' ', "-") } else { "kept".into() },
                finding.key.short_container(),
                finding.key.interface.clone(),
                finding.key.network.clone(),
                finding.evidence.join("; "),
            ]
        }),
    );
    format!("{rows}\n{count}")
}
