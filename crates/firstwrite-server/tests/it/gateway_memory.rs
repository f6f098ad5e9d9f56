//! How much memory a gateway takes up, whatever its clients do: looked at from outside, by the system's
//! own count.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::http::{get, post};
use crate::process::{Demo, Folder, firstwrite};

/// One at a time: what one of them does to the machine is no measure for another.
static ALONE: Mutex<()> = Mutex::new(());

const CHUNK: usize = 256 * 1024;
const MIB: u64 = 1024 * 1024;

/// An API that takes and gives any amount of zeros.
fn api() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // A head and a body are two writes.
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || serve(BufReader::with_capacity(CHUNK, stream)));
        }
    });
    address
}

fn serve(mut stream: BufReader<TcpStream>) -> Option<()> {
    loop {
        let (start, length) = read_head(&mut stream)?;
        take(&mut stream, length)?;
        let wanted = start.split(' ').nth(1)?.strip_prefix("/zeros/");
        let wanted: u64 = wanted.map_or(2, |count| count.parse().unwrap());
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {wanted}\r\n\r\n");
        stream.get_mut().write_all(head.as_bytes()).ok()?;
        give(stream.get_mut(), wanted)?;
    }
}

/// The first line, and the length that a header names.
fn read_head(stream: &mut BufReader<TcpStream>) -> Option<(String, u64)> {
    let (mut start, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            return Some((start, length));
        }
        if let Some(given) = line.strip_prefix("content-length: ") {
            length = given.parse().ok()?;
        }
        if start.is_empty() {
            start = line;
        }
    }
}

fn take(stream: &mut BufReader<TcpStream>, length: u64) -> Option<()> {
    let mut left = length;
    while left > 0 {
        let count = stream.fill_buf().ok().filter(|buffer| !buffer.is_empty())?.len();
        let count = count.min(usize::try_from(left).unwrap_or(count));
        stream.consume(count);
        left -= u64::try_from(count).unwrap();
    }
    Some(())
}

fn give(stream: &mut TcpStream, length: u64) -> Option<()> {
    let zeros = vec![0; CHUNK];
    let mut left = length;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        stream.write_all(&zeros[..count]).ok()?;
        left -= u64::try_from(count).unwrap();
    }
    Some(())
}

fn gateway(folder: &Folder, settings: &str) -> Demo {
    let settings = format!("[gateway]\nupstreams = ['http://{}']\n{settings}", api());
    fs::write(folder.path().join("gateway.toml"), settings).unwrap();
    let mut command = firstwrite(folder);
    command.args(["gateway", "--create", "--config", "gateway.toml", "--listen", "127.0.0.1:0"]);
    command.args(["--tenants", "single"]);
    let gateway = Demo::start(command.args(["--store", folder.store()]));
    // What it allocates once is not what is looked for.
    for number in 0..200 {
        is_served(&gateway, &format!("warm-{number}"));
    }
    gateway
}

/// A new client gets an answer, under a key and without.
fn is_served(gateway: &Demo, key: &str) {
    assert_eq!(gateway.answer(&get("/small")).status, 200);
    assert_eq!(gateway.answer(&post("/pay", "{}").key(key)).status, 200);
}

fn connect(gateway: &Demo) -> TcpStream {
    TcpStream::connect(gateway.address).unwrap()
}

/// How many idle connections there can be, of those that are wanted: the gateway, which has our limit of
/// descriptors, keeps half of them for its upstreams, and some are for whoever comes meanwhile.
fn possible(wanted: u64) -> u64 {
    const OTHERS: u64 = 100;
    let needed = 2 * (wanted + OTHERS);
    let granted = getrlimit(Resource::Nofile).maximum;
    let maximum = granted.filter(|granted| *granted >= needed).or(Some(needed));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).is_ok() {
        return wanted;
    }
    // Only some may raise what the system grants.
    setrlimit(Resource::Nofile, Rlimit { current: granted, maximum: granted }).unwrap();
    let most = granted.unwrap_or(needed);
    most / 2 - OTHERS
}

#[test]
fn ten_thousand_idle_connections_take_little_each() {
    let _alone = ALONE.lock().unwrap();
    let count = possible(10_000);
    println!("{count} connections; 10,000 need a limit of 20,200 open files");
    let folder = Folder::new();
    let gateway = gateway(&folder, "");
    let before = gateway.resident_kib();
    // Half of them have said nothing yet, half wait to ask again. An answer to one says that those before
    // it were let in: the system keeps no more than so many at the door.
    let mut connections: Vec<TcpStream> = Vec::new();
    for number in 0..count {
        connections.push(connect(&gateway));
        if number % 2 == 1 {
            ask_small(connections.last_mut().unwrap());
        }
    }
    let grown = gateway.resident_kib() - before;
    println!("{count} idle connections: {grown} KiB, {} KiB each", grown / count);
    assert!(grown / count < 32, "{grown} KiB for {count} connections");
    is_served(&gateway, "meanwhile");
    // None of them was turned out for the others.
    for stream in connections.iter_mut().step_by(500) {
        ask_small(stream);
    }
}

fn ask_small(stream: &mut TcpStream) {
    stream.write_all(b"GET /small HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    while !answer.ends_with(b"\0\0") {
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "it was ended");
        answer.extend(&buffer[..count]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
}

#[test]
fn slow_senders_share_a_bound_and_others_are_served() {
    const SENDERS: u64 = 1000;
    const SENT: usize = 64 * 1024;
    let _alone = ALONE.lock().unwrap();
    possible(2 * SENDERS);
    let folder = Folder::new();
    let gateway = gateway(&folder, "held_bytes_max = 16777216\n");
    let before = gateway.resident_kib();
    let body = vec![b'x'; SENT];
    let mut senders: Vec<TcpStream> = Vec::new();
    for number in 0..SENDERS {
        let mut stream = connect(&gateway);
        let head = format!(
            "POST /pay HTTP/1.1\r\nhost: a\r\nidempotency-key: slow-{number}\r\n\
             content-length: 1000000\r\n\r\n"
        );
        // It may be refused before all of it was sent.
        drop(stream.write_all(&[head.as_bytes(), &body].concat()));
        senders.push(stream);
        if number % 100 == 0 {
            is_served(&gateway, &format!("meanwhile-{number}"));
        }
    }
    let grown = gateway.resident_kib() - before;
    let mut refused = 0;
    for stream in &mut senders {
        stream.set_nonblocking(true).unwrap();
        let mut buffer = [0; 1024];
        if let Ok(count) = stream.read(&mut buffer) {
            let answer = String::from_utf8_lossy(&buffer[..count]);
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            assert!(answer.contains("retry-after: 1"), "{answer}");
            refused += 1;
        }
    }
    println!("{SENDERS} slow senders of 64 KiB each: {grown} KiB, {refused} were refused");
    // What is counted: the half that is for any body. And what each connection takes.
    assert!(grown < 8 * 1024 + SENDERS * 40, "{grown} KiB");
    // Some answers are still on their way.
    assert!((700..900).contains(&refused), "{refused}");
    is_served(&gateway, "after");
}

#[test]
fn bodies_in_pieces_of_one_byte_take_what_they_are() {
    const SENDERS: u64 = 10;
    const SENT: usize = 200_000;
    let _alone = ALONE.lock().unwrap();
    let folder = Folder::new();
    let gateway = gateway(&folder, "held_bytes_max = 16777216\n");
    let before = gateway.resident_kib();
    let body = "1\r\nx\r\n".repeat(SENT);
    let mut senders: Vec<TcpStream> = Vec::new();
    for number in 0..SENDERS {
        let mut stream = connect(&gateway);
        let head = format!(
            "POST /pay HTTP/1.1\r\nhost: a\r\nidempotency-key: pieces-{number}\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
        senders.push(stream);
    }
    let mut most = gateway.resident_kib();
    // An answer says that all of its pieces were there at the same time.
    for stream in &mut senders {
        stream.write_all(b"0\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        most = most.max(gateway.resident_kib());
    }
    let grown = most - before;
    println!("{SENDERS} bodies of {SENT} pieces of one byte: {grown} KiB");
    // Twice what came, and what each connection takes.
    assert!(grown < SENDERS * (512 + 128), "{grown} KiB");
    is_served(&gateway, "after");
}

#[test]
fn a_body_of_any_length_passes_through_in_little_memory() {
    let _alone = ALONE.lock().unwrap();
    let gibibytes = std::env::var("FIRSTWRITE_TEST_GIB").map_or(1, |count| count.parse().unwrap());
    let length: u64 = gibibytes * 1024 * MIB;
    let folder = Folder::new();
    let gateway = gateway(&folder, "");
    let before = gateway.resident_kib();
    let mut most = before;
    let mut look = |passed: u64| {
        if passed % (64 * MIB) < u64::try_from(CHUNK).unwrap() {
            most = most.max(gateway.resident_kib());
        }
    };
    let mut up = connect(&gateway);
    let head = format!("PUT /zeros/2 HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
    up.write_all(head.as_bytes()).unwrap();
    let chunk = vec![0; CHUNK];
    for passed in (0..length).step_by(CHUNK) {
        up.write_all(&chunk).unwrap();
        look(passed);
    }
    let mut answer = [0; 12];
    up.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");

    let mut down = BufReader::with_capacity(CHUNK, connect(&gateway));
    let ask = format!("GET /zeros/{length} HTTP/1.1\r\nhost: a\r\n\r\n");
    down.get_mut().write_all(ask.as_bytes()).unwrap();
    let (_, announced) = read_head(&mut down).unwrap();
    assert_eq!(announced, length);
    let mut passed = 0;
    while passed < length {
        let count = down.fill_buf().unwrap().len();
        assert_ne!(count, 0, "it ended after {passed}");
        down.consume(count);
        passed += u64::try_from(count).unwrap();
        look(passed);
    }
    println!("{gibibytes} GiB up and down: {} KiB more at the most", most - before);
    assert!(most - before < 8 * 1024, "{} KiB", most - before);
    is_served(&gateway, "after");
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// The frame of this number in a flood.
type Flood = fn(u32) -> Vec<u8>;

/// A GET of `http://a/a`, by numbers that every reader of heads knows, but for the path and the host.
const GET: [u8; 9] = [0x82, 0x86, 0x04, 0x02, b'/', b'a', 0x41, 0x01, b'a'];

#[test]
fn floods_of_frames_that_nobody_reads_the_answers_to_take_little() {
    const CONNECTIONS: u64 = 20;
    let _alone = ALONE.lock().unwrap();
    let folder = Folder::new();
    let gateway = gateway(&folder, "");
    let floods: [(&str, Flood); 5] = [
        ("pings", |_| frame(6, 0, 0, &[0; 8])),
        ("settings", |_| frame(4, 0, 0, &[])),
        ("requests", |number| frame(1, 5, 2 * number + 1, &GET)),
        ("resets", |number| {
            let stream = 2 * number + 1;
            [frame(1, 5, stream, &GET), frame(3, 0, stream, &[0, 0, 0, 8])].concat()
        }),
        ("heads without end", |number| match number {
            0 => frame(1, 1, 1, &GET),
            _ => frame(9, 0, 1, &[0, 1, b'x', 1, b'y']),
        }),
    ];
    for (name, frames) in floods {
        let before = gateway.resident_kib();
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut stream = connect(&gateway);
            let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])];
            stream.write_all(&preface.concat()).unwrap();
            stream.set_nonblocking(true).unwrap();
            // As much as is taken, and no more than would be noticed.
            for number in 0..20 {
                let many: Vec<u8> =
                    (0..1000).flat_map(|step| frames(number * 1000 + step)).collect();
                if stream.write_all(&many).is_err() {
                    break;
                }
            }
            connections.push(stream);
        }
        is_served(&gateway, &name.replace(' ', "-"));
        let grown = gateway.resident_kib().saturating_sub(before);
        println!("{CONNECTIONS} connections flooded with {name}: {grown} KiB");
        assert!(grown < CONNECTIONS * 512, "{name}: {grown} KiB");
    }
}
