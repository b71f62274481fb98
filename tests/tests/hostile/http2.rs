//! HTTP/2 (RFC 9113) as a client that does not behave writes it: frame by frame.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113, section 6).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header that is not indexed, name and value not compressed (RFC 7541, section 6.2.2).
fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.extend(length(text.len()));
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// An integer with a prefix of 7 bits (RFC 7541, section 5.1).
fn length(mut length: usize) -> Vec<u8> {
    let byte = |value: usize| u8::try_from(value).expect("less than a byte");
    if length < 127 {
        return vec![byte(length)];
    }
    let mut bytes = vec![127];
    length -= 127;
    while length >= 128 {
        bytes.push(byte(length % 128 + 128));
        length /= 128;
    }
    bytes.push(byte(length));
    bytes
}

/// The headers of a call of this method, with one more.
pub(crate) fn call(method: &str, (name, value): (&str, &str)) -> Vec<u8> {
    [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        (name, value),
    ]
    .iter()
    .flat_map(|(name, value)| header(name, value))
    .collect()
}

/// An empty message of gRPC.
pub(crate) const EMPTY: &[u8] = &[0; 5];

/// A connection that has said the preface and, as the first frame must be, its settings.
pub(crate) fn greet(socket: &Path, settings: &[u8]) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(Duration::from_millis(500)))?;
    stream.write_all(PREFACE)?;
    stream.write_all(&frame(SETTINGS, 0, 0, settings))?;
    Ok(stream)
}

/// Whether the other side hangs up within `limit`, whatever it says before.
pub(crate) fn hangs_up(mut stream: &UnixStream, limit: Duration) -> bool {
    stream.set_read_timeout(Some(limit)).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => (),
            Err(err) => return err.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}
