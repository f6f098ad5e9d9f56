//! Traces: a caller's goes on through the gateway, a replay points at the attempt, and nothing private is in
//! them.

#[cfg(not(feature = "otlp"))]
#[test]
fn a_build_that_cannot_send_traces_says_so() {
    use crate::process::{Folder, stderr};

    let folder = Folder::new();
    let upstream = ["gateway", "--tenants", "single", "--upstream", "http://127.0.0.1:1"];
    let refused = folder.refuse(&[&upstream[..], &["--otlp", "http://127.0.0.1:4318"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--features otlp"), "{}", stderr(&refused));
}

#[cfg(feature = "otlp")]
mod sent {
    use std::io::{BufReader, Write as _};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::{Arc, Mutex};
    use std::thread;

    use crate::database::on_every_store;
    use crate::gateway_telemetry::{Api, CANARIES, KEY, every_answer, gateway, pay, read_request};
    use crate::http::get;
    use crate::process::{Folder, stderr};

    on_every_store! {
        a_replay_points_at_the_attempt_whose_answer_it_is,
        nothing_private_is_in_a_span,
    }

    /// Takes what is sent, as a collector does.
    struct Collector {
        address: SocketAddr,
        taken: Arc<Mutex<Vec<Vec<u8>>>>,
    }

    /// What of a span is looked at.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Span {
        trace: String,
        id: String,
        parent: String,
        name: String,
        links: Vec<(String, String)>,
    }

    impl Collector {
        fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let taken = Arc::new(Mutex::new(Vec::new()));
            let taking = Arc::clone(&taken);
            thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    let mut stream = BufReader::new(stream);
                    let Some((head, body)) = read_request(&mut stream) else { continue };
                    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
                    taking.lock().unwrap().push(body);
                    let answer =
                        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    stream.get_mut().write_all(answer.as_bytes()).unwrap();
                }
            });
            Self { address, taken }
        }

        fn url(&self) -> String {
            format!("http://{}", self.address)
        }

        fn spans(&self) -> Vec<Span> {
            let taken = self.taken.lock().unwrap();
            let batches = taken.iter().flat_map(|batch| fields(batch, 1));
            let scopes = batches.flat_map(|resource| fields(resource, 2));
            scopes.flat_map(|scope| fields(scope, 2)).map(Span::read).collect()
        }
    }

    impl Span {
        /// A span as the protocol has it: the numbers are those of its fields.
        fn read(bytes: &[u8]) -> Self {
            let first = |number| fields(bytes, number).first().copied().unwrap_or_default();
            let link = |link| (hex(fields(link, 1)[0]), hex(fields(link, 2)[0]));
            Self {
                trace: hex(first(1)),
                id: hex(first(2)),
                parent: hex(first(4)),
                name: String::from_utf8(first(5).to_vec()).unwrap(),
                links: fields(bytes, 13).into_iter().map(link).collect(),
            }
        }
    }

    /// The fields of this number in a message of Protocol Buffers, as far as they have a length.
    fn fields(mut bytes: &[u8], number: u64) -> Vec<&[u8]> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let length = match tag % 8 {
                0 => {
                    varint(&mut bytes);
                    continue;
                }
                1 => 8,
                2 => usize::try_from(varint(&mut bytes)).unwrap(),
                5 => 4,
                other => panic!("a field of kind {other}"),
            };
            let (value, rest) = bytes.split_at(length);
            if tag / 8 == number {
                found.push(value);
            }
            bytes = rest;
        }
        found
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    fn a_replay_points_at_the_attempt_whose_answer_it_is(folder: &Folder) {
        let (api, collector) = (Api::start(), Collector::start());
        let upstream = format!("http://{}", api.address);
        let arguments =
            ["--upstream", &upstream, "--operator", "127.0.0.1:0", "--otlp", &collector.url()];
        let (gateway, _operator) = gateway(folder, &arguments);
        let (first_trace, second_trace) = ("11".repeat(16), "22".repeat(16));
        let (first_parent, second_parent) = ("33".repeat(8), "44".repeat(8));
        let send = |trace: &str, parent: &str| {
            let traceparent = format!("00-{trace}-{parent}-01");
            gateway.answer(&pay("/pay", KEY).header("traceparent", &traceparent))
        };
        let first = send(&first_trace, &first_parent);
        let again = send(&second_trace, &second_parent);
        assert!(!first.is_replay() && again.is_replay());
        for answer in [&first, &again] {
            assert_eq!(answer.header("firstwrite-traceparent"), None);
        }
        let status = get(&format!("/.firstwrite/operations/{KEY}"));
        let status = gateway.answer(&status.header("Authorization", "Bearer canary-bearer-77aa01"));
        assert_eq!(status.status, 200);
        assert!(!String::from_utf8(status.body).unwrap().contains("firstwrite-traceparent"));
        gateway.terminate();
        assert!(gateway.end().success());

        let spans = collector.spans();
        let of = |trace: &str, parent: &str| {
            let mut found =
                spans.iter().filter(|span| span.trace == trace && span.parent == parent);
            let span = found.next().unwrap_or_else(|| panic!("{trace} {parent}: {spans:?}"));
            assert_eq!(found.next(), None);
            span
        };
        let request = of(&first_trace, &first_parent);
        let attempt = of(&first_trace, &request.id);
        let call = of(&first_trace, &attempt.id);
        assert_eq!((&*request.name, &*attempt.name, &*call.name), ("POST", "idempotency", "POST"));
        let replay = of(&second_trace, &second_parent);
        assert_eq!(replay.links, [(first_trace.clone(), attempt.id.clone())]);
        assert!(request.links.is_empty(), "{request:?}");
        // The API repeats what it was sent: it was told to go on with the call.
        let sent = String::from_utf8(first.body).unwrap();
        assert!(sent.contains(&format!("00-{first_trace}-{}-01", call.id)), "{sent}");
    }

    fn nothing_private_is_in_a_span(folder: &Folder) {
        let (api, collector) = (Api::start(), Collector::start());
        let upstream = format!("http://{}", api.address);
        let arguments = [
            "--upstream",
            &upstream,
            "--operator",
            "127.0.0.1:0",
            "--otlp",
            &collector.url(),
            "--log",
            "trace",
        ];
        let (gateway, _operator) = gateway(folder, &arguments);
        every_answer(&gateway, &api);
        gateway.terminate();
        assert!(gateway.end().success());
        assert!(collector.spans().len() > 20, "{:?}", collector.spans());
        for batch in &*collector.taken.lock().unwrap() {
            let text = String::from_utf8_lossy(batch);
            for canary in CANARIES {
                assert!(!text.contains(canary), "{canary} is in a span: {text}");
            }
        }
    }

    #[test]
    fn a_collector_that_makes_no_sense_is_refused() {
        let folder = Folder::new();
        for wrong in ["127.0.0.1:4318", "ftp://a", "http://u:p@a", "http://a?b"] {
            let upstream = [
                "gateway",
                "--tenants",
                "single",
                "--upstream",
                "http://127.0.0.1:1",
                "--otlp",
                wrong,
            ];
            let refused = folder.refuse(&upstream);
            assert_eq!(refused.status.code(), Some(2), "{wrong}");
            assert!(stderr(&refused).contains("--otlp: the URL of a collector"), "{wrong}");
        }
    }
}
