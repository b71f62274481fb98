//! The life of the process, from the lock to the last answer.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use berth_cloud::local::{LocalAddresses, SpaceError};
use berth_core::{
    Ipam, Parts, Settings, StartError,
    ports::{Clock, StaticPods},
    start, vital,
};
use berth_datapath::{Host, HostError};
use berth_proto::{DESCRIPTORS, v1};
use berth_store::{OpenError, Options, SledStore};
use berth_types::chain;
use ipnet::IpNet;
use sd_notify::NotifyState;
use tokio::{
    signal::unix::{SignalKind, signal},
    time,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{service::InterceptorLayer, transport::Server};
use tracing::{error, info, warn};

use crate::{
    Config, LoadedConfig,
    aside::aside,
    clock::{BootClock, ClockError},
    conflist::{self, ConflistError},
    connections, gc,
    host::KernelHost,
    namespaces::HostNamespaces,
    rpc::{self, Service},
    socket::{self, SocketError},
    spool::Spool,
    watchdog,
};

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot use the boot-time clock")]
    Clock(#[from] ClockError),
    #[error("cannot open the state directory {path:?}")]
    Store { path: PathBuf, source: OpenError },
    #[error("`pod_cidrs`: cannot give out addresses")]
    Space(#[from] SpaceError),
    #[error("`pod_cidrs`: {cidr} overlaps {other} of this node; choose a prefix that is free")]
    Overlap { cidr: IpNet, other: String },
    #[error("cannot prepare the host's network")]
    Host(#[from] HostError),
    #[error("cannot rebuild what was")]
    Start(#[from] StartError),
    #[error(transparent)]
    Conflist(#[from] ConflistError),
    #[error("cannot open the spool {path:?}")]
    Spool { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("cannot take over signals")]
    Signals(#[source] io::Error),
    #[error("cannot serve reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
    #[error("serving failed")]
    Serve(#[source] tonic::transport::Error),
    #[error("the store failed: {0}")]
    StoreFailed(String),
}

/// When no uplink tells: Ethernet's (RFC 894).
const DEFAULT_MTU: u32 = 1500;

/// A pod's annotations are the largest thing in a message of the plugin: Kubernetes lets them
/// have 256 KiB together.
const LARGEST_MESSAGE: usize = 320 * 1024;

/// A runtime's list of valid attachments, some 150 bytes for each.
const LARGEST_LIST: usize = 1024 * 1024;

/// Calls at once over one connection. With the sizes above it bounds what one peer can have the
/// daemon hold.
const MOST_CALLS: u32 = 128;

/// Of one request. gRPC's own default for metadata is 8 KiB.
const LARGEST_HEADERS: u32 = 16 * 1024;

/// A call that is not there whole after this will never be; the calls themselves end before.
const SLOWEST_CALL: Duration = rpc::LONGEST_CALL.saturating_add(Duration::from_secs(10));

/// The pause before a conflist that could not be written is tried again.
const CONFLIST_RETRY: Duration = Duration::from_secs(30);

/// A peer that stopped reading is cut off after this, so that it does not keep its place.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// For the last answers to leave, once every call is done. Peers that stay connected (leaked,
/// stopped, slow) do not hold up the stop longer.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs until SIGTERM or SIGINT, or until the store fails.
pub async fn run(loaded: LoadedConfig) -> Result<(), RunError> {
    let config = with_families_of_kernel(loaded.config.clone());
    conflist::check(&config)?;
    let clock: Arc<dyn Clock> = Arc::new(BootClock::open()?);
    let (store, found) = open_store(&config, Arc::clone(&clock))?;
    let store = Arc::new(store);
    let doubtful = found.doubtful.is_some();

    let source = Arc::new(LocalAddresses::new(&config.pod_cidrs, &config.excluded)?);
    let host = Host::open(config.host_prefix.clone())?;
    let mtu = prepare_host(&host, &config).await?;
    berth_core::fail_point!("daemon::start::host_prepared");
    let settings = Settings {
        host_prefix: config.host_prefix.clone(),
        mtu,
        cool_down: config.cool_down,
        gc_grace: config.gc_grace,
        // Two looks of the loop, with room for its jitter.
        gc_looks_apart: config.gc_interval.mul_f32(0.9),
    };
    let parts = Parts {
        store: Arc::clone(&store) as _,
        source,
        host: Arc::new(KernelHost(host)),
        namespaces: Arc::new(HostNamespaces::new()),
        pods: Arc::new(StaticPods),
        clock,
        settings,
        min_idle: config.min_idle,
        max_idle: config.max_idle,
        warm_up: config.warm_up,
    };
    let (background, stop_background) = (TaskTracker::new(), CancellationToken::new());
    let ipam = start(parts, found, &background, &stop_background).await?;

    let spool_path = config.state_directory.join("spool");
    let spool_error = |source| RunError::Spool { path: spool_path.clone(), source };
    let spool = Spool::open(spool_path.clone()).map_err(spool_error)?;
    let all_done = spool.drain(&ipam).await.map_err(spool_error)?;
    berth_core::fail_point!("daemon::start::spool_drained");

    background.spawn(vital(spool.run(ipam.clone(), all_done, stop_background.clone())));
    background.spawn(vital(gc::run(ipam.clone(), config.gc_interval, stop_background.clone())));
    background.spawn(watchdog::run(ipam.clone(), stop_background.clone()));
    if doubtful {
        background.spawn(settle_doubt(Arc::clone(&store), ipam.clone(), stop_background.clone()));
    }

    let served = Box::pin(serve(&config, loaded, &ipam, &store)).await;
    // Whoever still waits for an address is told so by the pool's end.
    stop_background.cancel();
    background.close();
    if time::timeout(Duration::from_secs(5), background.wait()).await.is_err() {
        warn!(left = background.len(), "background tasks cut off");
    }
    store.close().await;
    served
}

fn open_store(
    config: &Config,
    clock: Arc<dyn Clock>,
) -> Result<(SledStore, berth_core::ports::Loaded), RunError> {
    let path = config.state_directory.clone();
    berth_store::open(Options::new(path.clone(), clock))
        .map_err(|source| RunError::Store { path, source })
}

/// The built-in CIDRs without IPv6 on a kernel that has none. What the operator asked for stays.
fn with_families_of_kernel(mut config: Config) -> Config {
    if config.families_by_default && !std::path::Path::new("/proc/sys/net/ipv6").exists() {
        warn!("this kernel has no IPv6: the node gives out IPv4 addresses only");
        config.pod_cidrs.retain(|cidr| cidr.addr().is_ipv4());
    }
    config
}

/// Refuses pod CIDRs that are in use, then switches forwarding and masquerade on. Answers the
/// pods' MTU.
async fn prepare_host(host: &Host, config: &Config) -> Result<u32, RunError> {
    if let Some((cidr, other)) = host.overlap(&config.pod_cidrs).await? {
        return Err(RunError::Overlap { cidr, other });
    }
    host.prepare(&config.pod_cidrs, config.masquerade).await?;
    let mtu = match config.mtu {
        Some(mtu) => mtu,
        None => host.uplink_mtu().await?.unwrap_or(DEFAULT_MTU),
    };
    info!(mtu, pod_cidrs = ?config.pod_cidrs.iter().map(ToString::to_string).collect::<Vec<_>>(), "host prepared");
    Ok(mtu)
}

/// The records are whole again once every link of ours has one.
async fn settle_doubt(store: Arc<SledStore>, ipam: Ipam, stop: CancellationToken) {
    let mut ticks = time::interval(Duration::from_secs(60));
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => (),
        }
        if !ipam.is_accounted() {
            continue;
        }
        match store.settle_doubt().await {
            Ok(()) => {
                info!("every link of ours has its record: the records are trusted again");
                return;
            }
            Err(err) => error!(err = %chain(&err), "cannot write down that the doubt is over"),
        }
    }
}

async fn serve(
    config: &Config,
    loaded: LoadedConfig,
    ipam: &Ipam,
    store: &SledStore,
) -> Result<(), RunError> {
    let listener = socket::listen(&config.socket).await?;
    let stop = CancellationToken::new();
    let requests = TaskTracker::new();
    let service = Service::new(ipam.clone(), requests.clone(), Arc::new(loaded), stop.clone());
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<v1::ipam_server::IpamServer<Service>>().await;
    health.set_serving::<v1::inspect_server::InspectServer<Service>>().await;
    health.set_serving::<v1::admin_server::AdminServer<Service>>().await;
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .http2_max_header_list_size(LARGEST_HEADERS)
        .max_concurrent_streams(MOST_CALLS)
        .timeout(SLOWEST_CALL)
        .layer(InterceptorLayer::new(rpc::admit))
        .add_service(health_service)
        .add_service(reflection_v1().map_err(RunError::Reflection)?)
        .add_service(reflection_v1alpha().map_err(RunError::Reflection)?)
        .add_service(
            v1::ipam_server::IpamServer::new(service.clone())
                .max_decoding_message_size(LARGEST_MESSAGE),
        )
        .add_service(
            v1::inspect_server::InspectServer::new(service.clone())
                .max_decoding_message_size(LARGEST_MESSAGE),
        )
        .add_service(
            v1::admin_server::AdminServer::new(service).max_decoding_message_size(LARGEST_LIST),
        )
        .serve_with_incoming_shutdown(
            connections::accept(listener),
            stop.clone().cancelled_owned(),
        );
    berth_core::fail_point!("daemon::start::listening");
    announce(config);
    requests.spawn(install_conflist(config.clone(), stop.clone()));

    let mut broken = store.failed();
    let failed = async move {
        let why = broken.wait_for(Option::is_some).await.map(|why| why.clone());
        match why {
            Ok(why) => why.unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    };
    let watched = async {
        let ended = tokio::select! {
            signal = terminated() => signal.map_err(RunError::Signals),
            why = failed => {
                error!(%why, "the store failed: berthd ends and starts again from the disk");
                Err(RunError::StoreFailed(why))
            }
        };
        ipam.begin_stop();
        watchdog::stopping(config.stop_grace);
        health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        health.set_not_serving::<v1::ipam_server::IpamServer<Service>>().await;
        health.set_not_serving::<v1::inspect_server::InspectServer<Service>>().await;
        health.set_not_serving::<v1::admin_server::AdminServer<Service>>().await;
        stop.cancel();
        ended
    };
    let all_answered = async {
        stop.cancelled().await;
        requests.close();
        requests.wait().await;
        time::sleep(LAST_WORDS).await;
    };
    let drained = async {
        let served = tokio::select! {
            served = server => served.map_err(RunError::Serve),
            () = all_answered => Ok(()),
        };
        // What came in the last moment.
        requests.close();
        requests.wait().await;
        served
    };
    let out_of_time = async {
        stop.cancelled().await;
        time::sleep(config.stop_grace).await;
    };
    // tonic waits for open calls without a limit, so the limit is around everything.
    let (ended, served) = tokio::join!(watched, async {
        tokio::select! {
            served = drained => served,
            () = out_of_time => {
                warn!(left = requests.len(), "requests cut off");
                Ok(())
            }
        }
    });
    info!("stopped serving");
    ended.and(served)
}

/// Tells everyone that the daemon serves: the plugin's STATUS, the runtime, systemd.
fn announce(config: &Config) {
    if let Some(directory) = config.socket.parent() {
        // What STATUS leaves there while the daemon is away.
        let _ = std::fs::remove_file(directory.join("away-since"));
        if let Err(err) = std::fs::write(directory.join("served"), b"") {
            warn!(%err, "cannot note that the daemon has served: STATUS has no grace");
        }
    }
    watchdog::notify(&[NotifyState::Ready]);
    info!(socket = %config.socket.display(), "serving");
}

/// Until it stands there: without it the runtime does not know of us.
async fn install_conflist(config: Config, stop: CancellationToken) {
    let config = Arc::new(config);
    loop {
        let installing = Arc::clone(&config);
        let installed = aside(async move { conflist::install(&installing) }).await;
        let Err(err) = installed else { return };
        error!(err = %chain(&err), "cannot install the conflist, trying again");
        tokio::select! {
            () = stop.cancelled() => return,
            () = time::sleep(CONFLIST_RETRY) => (),
        }
    }
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

fn reflection_v1() -> Result<
    tonic_reflection::server::v1::ServerReflectionServer<
        impl tonic_reflection::server::v1::ServerReflection,
    >,
    tonic_reflection::server::Error,
> {
    reflection().build_v1()
}

/// What Python's and older clients speak.
fn reflection_v1alpha() -> Result<
    tonic_reflection::server::v1alpha::ServerReflectionServer<
        impl tonic_reflection::server::v1alpha::ServerReflection,
    >,
    tonic_reflection::server::Error,
> {
    reflection().build_v1alpha()
}

/// SIGTERM or SIGINT. SIGHUP says that reloading is not there yet, instead of ending the process.
async fn terminated() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => warn!("reloading the configuration comes in stage 4: restart instead"),
        }
    }
}
