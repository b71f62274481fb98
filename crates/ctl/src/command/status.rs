use std::future::Future;

use berth_proto::v1;
use serde::Serialize;
use tonic::{Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;

use super::{config::ConfigView, pool::SummaryView};
use crate::{
    daemon::Daemon, exit::Exit, failure::Failure, output::Output, table::pairs, text::given,
};

/// `status -o json`. All but the first two are null when the daemon does not serve and does not
/// answer either.
#[derive(Debug, Serialize)]
struct StatusView {
    serving: bool,
    /// As the gRPC health service spells it.
    health: &'static str,
    version: Option<String>,
    mode: Option<String>,
    ip_stack: Option<String>,
    config_generation: Option<u64>,
    attachments: Option<usize>,
    pool: Option<SummaryView>,
}

pub(super) async fn run(daemon: &Daemon, output: &mut Output) -> Result<Exit, Failure> {
    let health = daemon.health().await?;
    let serving = health == ServingStatus::Serving;
    let config = ask(daemon, serving, daemon.inspect().get_config(v1::GetConfigRequest {})).await?;
    let request = v1::ListAttachmentsRequest::default();
    let attachments = ask(daemon, serving, daemon.inspect().list_attachments(request)).await?;
    let request = v1::ListPoolRequest { summary_only: true };
    let pool = ask(daemon, serving, daemon.inspect().list_pool(request)).await?;

    let config = config.map(ConfigView::try_from).transpose()?;
    let setting = |name: &str| config.as_ref().and_then(|config| config.text(name));
    let view = StatusView {
        serving,
        health: health.as_str_name(),
        version: config.as_ref().and_then(|config| given(config.version.clone())),
        mode: setting("daemon_mode"),
        ip_stack: setting("ip_stack"),
        config_generation: config.as_ref().map(|config| config.generation),
        attachments: attachments.map(|reply| reply.attachments.len()),
        pool: pool.map(|reply| reply.summary.into()),
    };
    output.show(&view, |view| {
        let unknown = || "?".to_owned();
        let count = view.attachments.map(|count| count.to_string());
        let generation = view.config_generation.map(|number| format!("generation {number}"));
        let serving = if view.serving { "yes".to_owned() } else { format!("no, {}", view.health) };
        pairs([
            ("serving", serving),
            ("version", view.version.clone().unwrap_or_else(unknown)),
            ("mode", view.mode.clone().unwrap_or_else(unknown)),
            ("ip stack", view.ip_stack.clone().unwrap_or_else(unknown)),
            ("pool", view.pool.as_ref().map_or_else(unknown, SummaryView::line)),
            ("attachments", count.unwrap_or_else(unknown)),
            ("config", generation.unwrap_or_else(unknown)),
        ])
    })?;
    Ok(if serving { Exit::Fine } else { Exit::BadNews })
}

/// A daemon that does not serve may leave any other question open.
async fn ask<T>(
    daemon: &Daemon,
    serving: bool,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Option<T>, Failure> {
    match daemon.ask(call).await {
        Ok(reply) => Ok(Some(reply)),
        Err(_) if !serving => Ok(None),
        Err(err) => Err(err.into()),
    }
}
