//! Mistakes in HTTP/2, and what may look like one, by section of RFC 9113.
#![expect(clippy::too_many_lines, reason = "a table is as long as it is")]

use crate::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, PADDED, PING, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, WITH_PRIORITY, block, frame, get, put,
};

/// What is expected of the stream 1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// An answer: it is no mistake.
    Fine,
    /// The end of the stream with this code. Whoever is stricter may end the connection.
    Stream(u32),
    /// The end of the connection with this code, or with the one that stands for every mistake.
    Connection(u32),
}

pub(crate) const PROTOCOL: u32 = 1;
const FLOW_CONTROL: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE: u32 = 6;
const COMPRESSION: u32 = 9;

use Expected::{Connection, Fine, Stream};

/// Sent on a connection that has begun, and what is expected.
pub(crate) type Case = (&'static str, Vec<Vec<u8>>, Expected);

/// A head on the stream 1, and nothing more.
fn head(fields: &[(&str, &str)]) -> Vec<Vec<u8>> {
    vec![frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(fields))]
}

/// A head on the stream 1 whose body follows.
fn begun() -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, &block(&put(&[])))
}

pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// Frames as such: sections 4.1, 4.2, 5.5.
pub(crate) fn frames() -> Vec<Case> {
    let large = vec![0; 16_385];
    vec![
        ("an unknown type is ignored", vec![frame(0x16, 0, 0, b"what"), get(1)], Fine),
        (
            "on a stream, too",
            vec![begun(), frame(0x16, 0, 1, b"what"), frame(DATA, END_STREAM, 1, b"")],
            Fine,
        ),
        ("unknown flags are ignored", vec![frame(PING, 0x16, 0, &[0; 8]), get(1)], Fine),
        ("the reserved bit is ignored", vec![frame(PING, 0, 1 << 31, &[0; 8]), get(1)], Fine),
        (
            "DATA beyond the largest frame",
            vec![begun(), frame(DATA, END_STREAM, 1, &large)],
            Connection(FRAME_SIZE),
        ),
        (
            "HEADERS beyond the largest frame",
            vec![frame(HEADERS, END_HEADERS, 1, &large)],
            Connection(FRAME_SIZE),
        ),
        (
            "SETTINGS beyond the largest frame",
            vec![frame(SETTINGS, 0, 0, &vec![0; 16_386])],
            Connection(FRAME_SIZE),
        ),
    ]
}

/// Header blocks: sections 4.3 and 6.10, RFC 7541.
pub(crate) fn blocks() -> Vec<Case> {
    let whole = block(&GET);
    let (front, back) = whole.split_at(10);
    let broken = |bytes: &[u8]| vec![frame(HEADERS, END_STREAM | END_HEADERS, 1, bytes)];
    vec![
        (
            "a head in pieces",
            vec![
                frame(HEADERS, END_STREAM, 1, front),
                frame(CONTINUATION, 0, 1, &[]),
                frame(CONTINUATION, END_HEADERS, 1, back),
            ],
            Fine,
        ),
        ("an index that nobody has", broken(&[0xff, 0x7f]), Connection(COMPRESSION)),
        ("the index zero", broken(&[0x80]), Connection(COMPRESSION)),
        (
            "a name by an index that nobody has",
            broken(&[0x0f, 0x7f, 1, b'a']),
            Connection(COMPRESSION),
        ),
        ("a string that is cut off", broken(&[0, 5, b'a']), Connection(COMPRESSION)),
        (
            "padding of a Huffman code that is too long",
            broken(&[0, 0x84, 0xff, 0xff, 0xff, 0xff, 0]),
            Connection(COMPRESSION),
        ),
        (
            "a table larger than allowed",
            broken(&[&[0x3f, 0xe1, 0xff, 0x07][..], &whole].concat()),
            Connection(COMPRESSION),
        ),
        (
            "a size of the table behind a field",
            broken(&[&whole[..], &[0x20]].concat()),
            Connection(COMPRESSION),
        ),
        (
            "something else in the middle",
            vec![frame(HEADERS, END_STREAM, 1, front), frame(PING, 0, 0, &[0; 8])],
            Connection(PROTOCOL),
        ),
        (
            "an unknown type in the middle",
            vec![frame(HEADERS, END_STREAM, 1, front), frame(0x16, 0, 1, b"")],
            Connection(PROTOCOL),
        ),
        (
            "another head in the middle",
            vec![frame(HEADERS, END_STREAM, 1, front), get(3)],
            Connection(PROTOCOL),
        ),
        (
            "a continuation of another stream",
            vec![frame(HEADERS, END_STREAM, 1, front), frame(CONTINUATION, END_HEADERS, 3, back)],
            Connection(PROTOCOL),
        ),
        (
            "a continuation of nothing",
            vec![begun(), frame(CONTINUATION, END_HEADERS, 1, back)],
            Connection(PROTOCOL),
        ),
        (
            "a continuation of DATA",
            vec![begun(), frame(DATA, 0, 1, b"a"), frame(CONTINUATION, END_HEADERS, 1, back)],
            Connection(PROTOCOL),
        ),
        (
            "a continuation of no stream",
            vec![frame(HEADERS, END_STREAM, 1, front), frame(CONTINUATION, END_HEADERS, 0, back)],
            Connection(PROTOCOL),
        ),
    ]
}

/// Streams: section 5.
pub(crate) fn streams() -> Vec<Case> {
    vec![
        ("DATA before a head", vec![frame(DATA, END_STREAM, 1, b"a")], Connection(PROTOCOL)),
        (
            "RST_STREAM before a head",
            vec![frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])],
            Connection(PROTOCOL),
        ),
        (
            "WINDOW_UPDATE before a head",
            vec![frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 8])],
            Connection(PROTOCOL),
        ),
        ("PRIORITY before a head", vec![frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 1]), get(1)], Fine),
        (
            "DATA after the end",
            vec![begun(), frame(DATA, END_STREAM, 1, b""), frame(DATA, END_STREAM, 1, b"a")],
            Stream(STREAM_CLOSED),
        ),
        (
            "a head after the end",
            vec![begun(), frame(DATA, END_STREAM, 1, b""), get(1)],
            Stream(STREAM_CLOSED),
        ),
        (
            "a second head that ends nothing",
            vec![begun(), frame(HEADERS, END_HEADERS, 1, &block(&[("x-a", "b")]))],
            Stream(PROTOCOL),
        ),
        ("an even number", vec![get(2)], Connection(PROTOCOL)),
        ("a number that went down", vec![get(5), get(3)], Connection(PROTOCOL)),
        (
            "a push from a client",
            vec![begun(), frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])],
            Connection(PROTOCOL),
        ),
        ("GOAWAY, and still an answer", vec![get(1), frame(GOAWAY, 0, 0, &[0; 8])], Fine),
    ]
}

/// The fields of frames: section 6.
pub(crate) fn definitions() -> Vec<Case> {
    let four = |number: u32| number.to_be_bytes().to_vec();
    vec![
        ("DATA on no stream", vec![frame(DATA, 0, 0, b"a")], Connection(PROTOCOL)),
        (
            "DATA of padding alone, and more",
            vec![begun(), frame(DATA, PADDED | END_STREAM, 1, &[5, 0, 0])],
            Connection(PROTOCOL),
        ),
        ("padding", vec![begun(), frame(DATA, PADDED | END_STREAM, 1, &[2, b'a', 0, 0])], Fine),
        (
            "a head on no stream",
            vec![frame(HEADERS, END_HEADERS, 0, &block(&GET))],
            Connection(PROTOCOL),
        ),
        (
            "a head of padding alone, and more",
            vec![frame(HEADERS, PADDED | END_HEADERS | END_STREAM, 1, &[9, 0])],
            Connection(PROTOCOL),
        ),
        (
            "a head with a priority",
            vec![frame(
                HEADERS,
                WITH_PRIORITY | END_HEADERS | END_STREAM,
                1,
                &[vec![0, 0, 0, 0, 1], block(&GET)].concat(),
            )],
            Fine,
        ),
        (
            "a head that depends on itself",
            vec![frame(
                HEADERS,
                WITH_PRIORITY | END_HEADERS | END_STREAM,
                1,
                &[vec![0, 0, 0, 1, 1], block(&GET)].concat(),
            )],
            Stream(PROTOCOL),
        ),
        ("PRIORITY on no stream", vec![frame(PRIORITY, 0, 0, &[0; 5])], Connection(PROTOCOL)),
        (
            "PRIORITY of another length",
            vec![begun(), frame(PRIORITY, 0, 1, &[0; 4])],
            Stream(FRAME_SIZE),
        ),
        ("RST_STREAM on no stream", vec![frame(RST_STREAM, 0, 0, &[0; 4])], Connection(PROTOCOL)),
        (
            "RST_STREAM of another length",
            vec![begun(), frame(RST_STREAM, 0, 1, &[0; 3])],
            Connection(FRAME_SIZE),
        ),
        (
            "SETTINGS that agree and say something",
            vec![frame(SETTINGS, ACK, 0, &[0; 6])],
            Connection(FRAME_SIZE),
        ),
        ("SETTINGS on a stream", vec![frame(SETTINGS, 0, 1, &[])], Connection(PROTOCOL)),
        (
            "SETTINGS of half a setting",
            vec![frame(SETTINGS, 0, 0, &[0; 3])],
            Connection(FRAME_SIZE),
        ),
        (
            "a setting that is no yes or no",
            vec![frame(SETTINGS, 0, 0, &setting(2, 2))],
            Connection(PROTOCOL),
        ),
        (
            "a window that is too large",
            vec![frame(SETTINGS, 0, 0, &setting(4, 1 << 31))],
            Connection(FLOW_CONTROL),
        ),
        (
            "a largest frame that is too small",
            vec![frame(SETTINGS, 0, 0, &setting(5, 16_383))],
            Connection(PROTOCOL),
        ),
        (
            "a largest frame that is too large",
            vec![frame(SETTINGS, 0, 0, &setting(5, 1 << 24))],
            Connection(PROTOCOL),
        ),
        (
            "an unknown setting is ignored",
            vec![frame(SETTINGS, 0, 0, &setting(0xff, 1)), get(1)],
            Fine,
        ),
        ("PING on a stream", vec![frame(PING, 0, 1, &[0; 8])], Connection(PROTOCOL)),
        ("PING of another length", vec![frame(PING, 0, 0, &[0; 6])], Connection(FRAME_SIZE)),
        ("an answer to no PING is ignored", vec![frame(PING, ACK, 0, &[7; 8]), get(1)], Fine),
        ("GOAWAY on a stream", vec![frame(GOAWAY, 0, 1, &[0; 8])], Connection(PROTOCOL)),
        (
            "a window that grows by nothing",
            vec![frame(WINDOW_UPDATE, 0, 0, &four(0))],
            Connection(PROTOCOL),
        ),
        (
            "the same on a stream",
            vec![begun(), frame(WINDOW_UPDATE, 0, 1, &four(0))],
            Stream(PROTOCOL),
        ),
        (
            "WINDOW_UPDATE of another length",
            vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])],
            Connection(FRAME_SIZE),
        ),
        (
            "a window that overflows",
            vec![
                frame(WINDOW_UPDATE, 0, 0, &four(0x7fff_ffff)),
                frame(WINDOW_UPDATE, 0, 0, &four(0x7fff_ffff)),
            ],
            Connection(FLOW_CONTROL),
        ),
        (
            "the same on a stream",
            vec![
                begun(),
                frame(WINDOW_UPDATE, 0, 1, &four(0x7fff_ffff)),
                frame(WINDOW_UPDATE, 0, 1, &four(0x7fff_ffff)),
            ],
            Stream(FLOW_CONTROL),
        ),
    ]
}

/// Messages: section 8.
pub(crate) fn messages() -> Vec<Case> {
    let with = |name: &'static str, value: &'static str| head(&put(&[(name, value)]));
    let without = |name: &str| {
        let fields: Vec<_> = GET.into_iter().filter(|(found, _)| *found != name).collect();
        head(&fields)
    };
    let sized = |length: &'static str, data: &[&[u8]]| {
        let mut frames =
            vec![frame(HEADERS, END_HEADERS, 1, &block(&put(&[("content-length", length)])))];
        let (last, front) = data.split_last().unwrap();
        frames.extend(front.iter().map(|data| frame(DATA, 0, 1, data)));
        frames.push(frame(DATA, END_STREAM, 1, last));
        frames
    };
    let mut late = GET.to_vec();
    late.swap(2, 3);
    late.insert(2, ("x-a", "b"));
    vec![
        (
            "trailers",
            vec![
                begun(),
                frame(DATA, 0, 1, b"a"),
                frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&[("x-a", "b")])),
            ],
            Fine,
        ),
        // A mistake; but trailers go no further, whatever is in them.
        (
            "a pseudo-field in trailers",
            vec![
                begun(),
                frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&[(":method", "GET")])),
            ],
            Fine,
        ),
        ("a name in capitals", with("X-A", "b"), Stream(PROTOCOL)),
        ("a name with a space", with("x a", "b"), Stream(PROTOCOL)),
        ("a name with a colon", with("x:a", "b"), Stream(PROTOCOL)),
        ("no name", with("", "b"), Stream(PROTOCOL)),
        ("CR in a value", with("x-a", "b\rc"), Stream(PROTOCOL)),
        ("LF in a value", with("x-a", "b\nhost: c"), Stream(PROTOCOL)),
        (
            "CR LF in a value",
            with("x-a", "b\r\n\r\nGET /hidden HTTP/1.1\r\nhost: a"),
            Stream(PROTOCOL),
        ),
        ("NUL in a value", with("x-a", "b\0c"), Stream(PROTOCOL)),
        ("connection", with("connection", "close"), Stream(PROTOCOL)),
        ("keep-alive", with("keep-alive", "timeout=5"), Stream(PROTOCOL)),
        ("proxy-connection", with("proxy-connection", "close"), Stream(PROTOCOL)),
        ("transfer-encoding", with("transfer-encoding", "chunked"), Stream(PROTOCOL)),
        ("upgrade", with("upgrade", "websocket"), Stream(PROTOCOL)),
        ("te: gzip", with("te", "gzip"), Stream(PROTOCOL)),
        ("te: trailers", with("te", "trailers"), Fine),
        ("an unknown pseudo-field", with(":what", "a"), Stream(PROTOCOL)),
        ("the pseudo-field of an answer", with(":status", "200"), Stream(PROTOCOL)),
        ("a pseudo-field behind a field", head(&late), Stream(PROTOCOL)),
        ("a pseudo-field twice", with(":path", "/b"), Stream(PROTOCOL)),
        ("no method", without(":method"), Stream(PROTOCOL)),
        ("no scheme", without(":scheme"), Stream(PROTOCOL)),
        ("no path", without(":path"), Stream(PROTOCOL)),
        ("an empty path", head(&[GET[0], GET[1], (":path", ""), GET[3]]), Stream(PROTOCOL)),
        (
            "CR LF in a path",
            head(&[GET[0], GET[1], (":path", "/a HTTP/1.1\r\nx: y"), GET[3]]),
            Stream(PROTOCOL),
        ),
        (
            "a space in a path",
            head(&[GET[0], GET[1], (":path", "/a /b"), GET[3]]),
            Stream(PROTOCOL),
        ),
        (
            "CR LF in a method",
            head(&[(":method", "GET /hidden HTTP/1.1\r\n"), GET[1], GET[2], GET[3]]),
            Stream(PROTOCOL),
        ),
        (
            "a slash in an authority",
            head(&[GET[0], GET[1], GET[2], (":authority", "a/b")]),
            Stream(PROTOCOL),
        ),
        ("as much as it said", sized("3", &[b"ab", b"c"]), Fine),
        ("less than it said", sized("3", &[b"ab"]), Stream(PROTOCOL)),
        ("more than it said", sized("3", &[b"ab", b"cd"]), Stream(PROTOCOL)),
        (
            "nothing, where it said something",
            head(&put(&[("content-length", "3")])),
            Stream(PROTOCOL),
        ),
        ("a length that is none", sized("3x", &[b"abc"]), Stream(PROTOCOL)),
        (
            "two lengths",
            head(&put(&[("content-length", "0"), ("content-length", "3")])),
            Stream(PROTOCOL),
        ),
    ]
}
