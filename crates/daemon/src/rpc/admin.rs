use std::collections::BTreeSet;

use berth_core::{GcRequest, Release};
use berth_proto::{self as wire, BadRequest, v1};
use berth_types::one_line;
use tonic::{Request, Response, Status};
use tracing::info;

use crate::aside::aside;

use super::{LONGEST_REASON, Service, limit, require_root, status};

fn bad(err: BadRequest) -> Status {
    status::bad_request(&err)
}

pub(super) fn gc_request(request: v1::RunGcRequest) -> Result<GcRequest, BadRequest> {
    let runtime = match request.runtime {
        None => None,
        Some(list) => {
            let network =
                list.network.parse().map_err(|err| BadRequest::field("runtime.network", err))?;
            let valid = list
                .valid
                .into_iter()
                .map(|key| wire::key(Some(key)))
                .collect::<Result<BTreeSet<_>, _>>()?;
            Some((network, valid))
        }
    };
    Ok(GcRequest { dry_run: request.dry_run, runtime })
}

#[tonic::async_trait]
impl v1::admin_server::Admin for Service {
    async fn run_gc(
        &self,
        request: Request<v1::RunGcRequest>,
    ) -> Result<Response<v1::RunGcReply>, Status> {
        require_root(&request)?;
        let request = gc_request(request.into_inner()).map_err(bad)?;
        let ipam = self.ipam.clone();
        let findings = self
            .run(async move {
                aside(async move { ipam.collect(request).await })
                    .await
                    .map_err(|err| status::collect(&err))
            })
            .await?;
        let findings = findings
            .into_iter()
            .map(|finding| v1::GcFinding {
                key: Some((&finding.key).into()),
                collected: finding.collected,
                evidence: finding.evidence,
            })
            .collect();
        Ok(Response::new(v1::RunGcReply { findings }))
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseReply>, Status> {
        require_root(&request)?;
        let limit = limit(&request);
        let request = request.into_inner();
        if request.reason.trim().is_empty() {
            return Err(bad(BadRequest::Missing("reason")));
        }
        let release = Release {
            key: wire::key(request.key).map_err(bad)?,
            started: None,
            reason: format!("by hand: {}", one_line(&request.reason, LONGEST_REASON)),
            only_if_dead: !request.force,
            limit,
        };
        info!(key = %release.key, reason = ?release.reason, force = request.force, "release by hand");
        let ipam = self.ipam.clone();
        let released = self
            .run(async move { ipam.release(release).await.map_err(|err| status::release(&err)) })
            .await?;
        Ok(Response::new(v1::ReleaseReply {
            released: released.addresses.is_some(),
            addresses: released.addresses.as_ref().map(wire::ip_set),
        }))
    }

    async fn run_audit(
        &self,
        request: Request<v1::RunAuditRequest>,
    ) -> Result<Response<v1::RunAuditReply>, Status> {
        require_root(&request)?;
        Err(status::not_built("the audit", 2))
    }

    async fn reload(
        &self,
        request: Request<v1::ReloadRequest>,
    ) -> Result<Response<v1::ReloadReply>, Status> {
        require_root(&request)?;
        Err(status::not_built("reloading the configuration", 4))
    }

    async fn set_log_level(
        &self,
        request: Request<v1::SetLogLevelRequest>,
    ) -> Result<Response<v1::SetLogLevelReply>, Status> {
        require_root(&request)?;
        Err(status::not_built("changing the log level", 4))
    }
}
