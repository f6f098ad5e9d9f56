//! The reading of answers, whole and broken; and one connection used twice.

use std::net::TcpListener;

use super::*;

fn read(text: &str) -> io::Result<(Response, bool)> {
    read_response(&mut text.as_bytes())
}

#[test]
fn a_body_of_known_length_is_read_and_the_connection_kept() {
    let (response, can_go_on) =
        read("HTTP/1.1 201 Created\r\nLocation: /payments/1\r\nContent-Length: 2\r\n\r\n{}rest")
            .unwrap();
    assert_eq!(response.status, 201);
    assert_eq!(response.header("location"), Some("/payments/1"));
    assert_eq!(response.body, b"{}");
    assert!(can_go_on);
}

#[test]
fn chunks_are_put_together() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n5;x=y\r\npedia\r\n0\r\nA: b\r\n\r\n";
    let (response, can_go_on) = read(text).unwrap();
    assert_eq!(response.body, b"Wikipedia");
    assert!(can_go_on);
}

#[test]
fn a_body_without_length_ends_with_the_connection() {
    let (response, can_go_on) = read("HTTP/1.1 200 OK\r\n\r\nall of it").unwrap();
    assert_eq!(response.body, b"all of it");
    assert!(!can_go_on);
    assert!(!read("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap().1);
    assert!(!read("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap().1);
    assert!(read("HTTP/1.1 204 No Content\r\n\r\n").unwrap().1);
}

#[test]
fn interim_answers_are_read_over() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(read(text).unwrap().0.status, 200);
}

#[test]
fn an_answer_that_breaks_off_is_no_answer() {
    let whole = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nbody";
    for length in 0..whole.len() {
        assert!(read(&whole[..length]).is_err(), "{:?} was taken for whole", &whole[..length]);
    }
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n0\r\n\r\n";
    for length in 0..chunked.len() {
        assert!(read(&chunked[..length]).is_err(), "{:?} was taken for whole", &chunked[..length]);
    }
}

#[test]
fn nonsense_and_excess_are_refused() {
    assert!(read("SSH-2.0\r\n\r\n").is_err());
    assert!(read("HTTP/1.1 abc\r\n\r\n").is_err());
    assert!(read("HTTP/1.1 200 OK\r\nno colon\r\n\r\n").is_err());
    assert!(read("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n").is_err());
    let many = "a: b\r\n".repeat(HEADER_COUNT_MAX + 1);
    assert!(read(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")).is_err());
    let long = "x".repeat(20_000);
    assert!(read(&format!("HTTP/1.1 200 OK\r\na: {long}\r\n\r\n")).is_err());
}

#[test]
fn what_curl_prints_keeps_its_body_as_it_is() {
    let printed = b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n{\"id\":1}";
    let response = Response::from_printed(printed).unwrap();
    assert_eq!((response.status, response.body.as_slice()), (201, &b"{\"id\":1}"[..]));
}

#[test]
fn a_connection_is_used_again_and_a_request_is_sent_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        for _ in 0..2 {
            assert_eq!(read_line(&mut stream).unwrap(), "POST /payments HTTP/1.1");
            while !read_line(&mut stream).unwrap().is_empty() {}
            assert_eq!(read_exactly(&mut stream, 2).unwrap(), b"{}");
            stream
                .get_mut()
                .write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
        }
    });
    let mut client = Client::new(address, Duration::from_secs(10));
    let request = Request {
        method: "POST",
        path: "/payments".to_owned(),
        headers: vec![("content-type", "application/json".to_owned())],
        body: b"{}".to_vec(),
    };
    for _ in 0..2 {
        assert_eq!(client.send(&request).unwrap().status, 201);
    }
    server.join().unwrap();
    client.send(&request).expect_err("the server is gone, and nothing may be sent twice unasked");
}
