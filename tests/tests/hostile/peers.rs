//! Who connects to the daemon's socket without the right to, or without an end.

use std::{
    fs, io,
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixStream,
        process::CommandExt,
    },
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use berth_tests::{Node, NodeOptions, Pod, Stopwatch, binary, eventually};
use prost::Message;
use prost_types::FileDescriptorSet;
use tonic::{Code, codegen::http::uri::PathAndQuery, transport::Endpoint};
use tonic_prost::ProstCodec;

use crate::http2::{greet, hangs_up};

const NOBODY: u32 = 65534;

/// Runs `work` on a thread whose user is nobody; the process stays root's. The C library would
/// change all threads, the kernel itself changes one.
fn as_nobody<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(move || {
        #[expect(unsafe_code, reason = "a system call with numbers for arguments")]
        let changed =
            unsafe { nix::libc::syscall(nix::libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(changed, 0, "{}", io::Error::last_os_error());
        work()
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// As after a `chmod` by hand.
fn open_to_all(socket: &Path) {
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(socket.parent().unwrap(), 0o755);
    mode(socket, 0o666);
}

/// Every method there is, as `/package.Service/Method`.
fn methods() -> Vec<String> {
    let own = FileDescriptorSet::decode(berth_proto::DESCRIPTORS).unwrap();
    let foreign = [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ];
    let mut methods = foreign.map(str::to_owned).to_vec();
    for file in &own.file {
        for service in &file.service {
            let path = format!("{}.{}", file.package(), service.name());
            methods.extend(service.method.iter().map(|it| format!("/{path}/{}", it.name())));
        }
    }
    assert!(methods.len() > 15, "{methods:?}");
    methods
}

/// The status of a call with an empty message, whatever the method wants. A server that streams
/// answers a refusal in the same way.
fn status(socket: &Path, method: String) -> Code {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let path: PathAndQuery = method.parse().unwrap();
        let call = client.unary(tonic::Request::new(()), path, ProstCodec::<(), ()>::default());
        let call = tokio::time::timeout(Duration::from_secs(5), call).await;
        call.expect("an answer").map_or_else(|status| status.code(), |_| Code::Ok)
    })
}

#[test]
fn a_peer_without_rights_cannot_connect() {
    Node::with(NodeOptions::default(), |node| {
        let socket = node.socket();
        let err = as_nobody(move || UnixStream::connect(socket)).unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::PermissionDenied, "{err}");
    });
}

#[test]
fn a_peer_without_rights_is_refused_by_every_method_where_the_mode_lets_it_in() {
    Node::with(NodeOptions::default(), |node| {
        open_to_all(&node.socket());
        for method in methods() {
            let (socket, asked) = (node.socket(), method.clone());
            let code = as_nobody(move || status(&socket, asked));
            assert_eq!(code, Code::PermissionDenied, "{method}");
        }
        // And root is not.
        assert_ne!(
            status(&node.socket(), "/berth.v1.Inspect/GetConfig".into()),
            Code::PermissionDenied
        );
    });
}

#[test]
fn berthctl_of_a_user_without_rights_says_so() {
    Node::with(NodeOptions::default(), |node| {
        let program = Path::new("/run/berthctl");
        fs::copy(binary("berthctl"), program).unwrap();
        chown(program, Some(NOBODY), None).unwrap();
        let ask = |arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).current_dir("/").uid(NOBODY).gid(NOBODY).output().unwrap()
        };
        for arguments in [&["status"][..], &["pods"], &["gc"], &["release", "x", "--reason", "y"]] {
            let closed = ask(arguments);
            assert_eq!(closed.status.code(), Some(4), "{closed:?}");
        }
        open_to_all(&node.socket());
        for arguments in [&["status"][..], &["pods"], &["gc"], &["release", "x", "--reason", "y"]] {
            let open = ask(arguments);
            assert_eq!(open.status.code(), Some(4), "{open:?}");
        }
    });
}

/// How many of these the daemon has hung up on.
fn hung_up(streams: &[UnixStream]) -> usize {
    streams.iter().filter(|stream| hangs_up(stream, Duration::from_millis(1))).count()
}

#[test]
fn connections_that_leak_take_nothing_from_others() {
    Node::with(NodeOptions::default(), |node| {
        let before = node.daemon().usage().anonymous;
        let connect = || UnixStream::connect("/run/berth/berth.sock").unwrap();
        // One process gets its share and no more.
        let silent: Vec<UnixStream> = (0..600).map(|_| connect()).collect();
        eventually(Duration::from_secs(3), || match hung_up(&silent) {
            344 => Ok(()),
            other => Err(format!("{other} of 600 are hung up")),
        });
        let pod = Pod::new();
        node.add(&pod).result();
        // Who never says a word loses the place, too.
        eventually(Duration::from_secs(10), || match hung_up(&silent) {
            600 => Ok(()),
            other => Err(format!("{other} of 600 are hung up")),
        });
        drop(silent);
        // Nor does one that begins and does not go on.
        let half = connect();
        io::Write::write_all(&mut &half, b"PRI * HTTP").unwrap();
        assert!(hangs_up(&half, Duration::from_secs(8)));
        // One that has said the preface stays, as long as it answers pings.
        let mute = greet(&node.socket(), &[]).unwrap();
        assert!(!hangs_up(&mute, Duration::from_secs(6)));
        node.del(&pod).nothing();
        let grown = node.daemon().usage().anonymous.saturating_sub(before);
        assert!(grown < 32 << 20, "{grown} bytes more");
    });
}

#[test]
fn peers_without_rights_have_few_places_between_them() {
    Node::with(NodeOptions::default(), |node| {
        open_to_all(&node.socket());
        let connect = || {
            let greet = |_| greet(Path::new("/run/berth/berth.sock"), &[]);
            (0..100).filter_map(|number| greet(number).ok()).collect::<Vec<_>>()
        };
        let strangers = as_nobody(connect);
        eventually(Duration::from_secs(3), || match strangers.len() - hung_up(&strangers) {
            16 => Ok(()),
            other => Err(format!("{other} are connected")),
        });
        node.ctl("status");
    });
}

/// A stopped client, a forgotten `berthctl watch`, a connection that nobody closes.
#[test]
fn who_stays_connected_does_not_hold_up_the_stop() {
    Node::with(NodeOptions::default(), |node| {
        let mut watching = Command::new(binary("berthctl")).arg("watch").spawn().unwrap();
        let silent = UnixStream::connect(node.socket()).unwrap();
        let mute = greet(&node.socket(), &[]).unwrap();
        // A stream is open once it has brought something.
        node.add(&Pod::new()).result();
        let stopwatch = Stopwatch::start();
        assert!(node.stop().success());
        let took = stopwatch.elapsed();
        // The grace is 20 s, for calls that are being worked on. There are none.
        assert!(took < Duration::from_secs(5), "{took:?}");
        watching.wait().unwrap();
        drop((silent, mute));
    });
}
