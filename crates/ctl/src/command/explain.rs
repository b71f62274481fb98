use berth_proto::v1::{self, explain_request::Of};
use serde::Serialize;

use crate::{
    arguments::Explain, daemon::Daemon, exit::Exit, failure::Failure, output::Output,
    text::one_line,
};

/// `explain -o json`.
#[derive(Debug, Serialize)]
struct ExplainView {
    found: bool,
    verdict: String,
    facts: Vec<String>,
}

pub(super) async fn run(
    daemon: &Daemon,
    question: Explain,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let of = match question {
        Explain::Pod { pod } => {
            let (namespace, name) = pod.rsplit_once('/').unwrap_or(("", &pod));
            Of::Pod(v1::PodIdentity {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: String::new(),
            })
        }
        Explain::Ip { address } => Of::Ip(address.to_string()),
    };
    let request = v1::ExplainRequest { of: Some(of) };
    let v1::ExplainReply { verdict, facts, found } =
        daemon.ask(daemon.inspect().explain(request)).await?;
    output.show(&ExplainView { found, verdict, facts }, |view| {
        let mut text = one_line(&view.verdict) + "\n";
        for fact in &view.facts {
            text += &format!("  - {}\n", one_line(fact));
        }
        text
    })?;
    Ok(if found { Exit::Fine } else { Exit::BadNews })
}
