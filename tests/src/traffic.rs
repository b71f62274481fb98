use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    time::Duration,
};

use crate::{Stopwatch, eventually};

/// One ping from this thread's namespace, answered within a second.
pub fn ping(address: IpAddr) -> bool {
    Command::new("ping")
        .args(["-n", "-c", "1", "-W", "1", &address.to_string()])
        .output()
        .expect("ping is installed (Debian: iputils-ping)")
        .status
        .success()
}

/// Takes one connection and counts what comes within `span` from the first byte; bytes, and who
/// sent them. Gives up when nobody comes for 10 s.
pub fn receive(listener: &TcpListener, span: Duration) -> (u64, SocketAddr) {
    let waiting = Stopwatch::start();
    listener.set_nonblocking(true).unwrap();
    let (mut stream, sender) = loop {
        match listener.accept() {
            Ok(accepted) => break accepted,
            Err(err) if err.kind() == ErrorKind::WouldBlock => {
                assert!(waiting.elapsed() < Duration::from_secs(10), "nobody connected");
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(err) => panic!("cannot accept: {err}"),
        }
    };
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = vec![0; 64 << 10];
    let mut total = stream.read(&mut buffer).unwrap() as u64;
    let stopwatch = Stopwatch::start();
    while stopwatch.elapsed() < span {
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => total += bytes as u64,
            Err(err)
                if matches!(
                    err.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(err) => panic!("cannot read: {err}"),
        }
    }
    (total, sender)
}

/// Sends zeros to `address` as fast as they are taken, for `span` or until the other end hangs up.
pub fn send(address: SocketAddr, span: Duration) {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))
        .unwrap_or_else(|err| panic!("cannot connect to {address}: {err}"));
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let stopwatch = Stopwatch::start();
    let zeros = vec![0; 64 << 10];
    while stopwatch.elapsed() < span {
        match stream.write(&zeros) {
            Ok(_) => {}
            Err(err)
                if matches!(
                    err.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(_) => break,
        }
    }
}

/// What an HTTP server answers to a client of this thread's namespace, waited for up to 10 s.
#[track_caller]
pub fn fetch(server: SocketAddr) -> String {
    let mut stream = eventually(Duration::from_secs(10), || {
        TcpStream::connect_timeout(&server, Duration::from_secs(1))
            .map_err(|err| format!("{server}: {err}"))
    });
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}
