//! What a key may look like on the wire; what is none touches no store.

use firstwrite_gateway::Gateway;
use tokio::io::AsyncWriteExt as _;

use crate::client::Client;
use crate::gateway::{anywhere, away_store, rules};
use crate::upstream::Upstream;
use crate::wire::Message;

async fn pay(gateway: &Gateway, keys: &[&[u8]]) -> Message {
    let mut request = b"POST /pay HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n".to_vec();
    for key in keys {
        request.extend([b"idempotency-key: ", *key, b"\r\n"].concat());
    }
    request.extend(b"\r\n{}");
    let mut client = Client::connect(gateway.address()).await;
    client.0.write_all(&request).await.unwrap();
    client.read().await.expect("an answer")
}

#[tokio::test]
async fn what_is_no_key_is_a_400_and_touches_no_store() {
    let upstream = Upstream::start().await;
    let store = away_store();
    store.goes_away();
    let gateway = Gateway::start(store, &anywhere(), rules(&[&upstream])).await.unwrap();
    assert_eq!(pay(&gateway, &[b"k"]).await.status(), 503, "the store is asked for this one");
    assert_eq!(pay(&gateway, &[]).await.code(), "key-missing");
    let long = "k".repeat(256);
    let long_quoted = format!("\"{long}\"");
    let wrong: [&[&[u8]]; 14] = [
        &[b"a", b"b"],
        &[b"\"a\"", b"\"b\""],
        &[b"\"a\",\"b\""],
        &[b"a, b"],
        &[b""],
        &[b"\"\""],
        &[b"\"a"],
        &[b"a\""],
        &[b"\"a\\\""],
        &[b"a b"],
        &[b"k\xc3\xa9y"],
        &[b"\"k\xe9y\""],
        &[long.as_bytes()],
        &[long_quoted.as_bytes()],
    ];
    for keys in wrong {
        let refused = pay(&gateway, keys).await;
        let shown: Vec<String> = keys.iter().map(|key| key.escape_ascii().to_string()).collect();
        assert_eq!((refused.status(), refused.code().as_str()), (400, "key-invalid"), "{shown:?}");
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    }
    // The parser takes these for no header at all.
    for keys in [&b"a\0b"[..], b"a\x01b", b"a\x7fb"] {
        assert_eq!(pay(&gateway, &[keys]).await.status(), 400);
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn a_key_has_several_spellings_and_many_forms() {
    let upstream = Upstream::start().await;
    let store = away_store();
    let gateway = Gateway::start(store, &anywhere(), rules(&[&upstream])).await.unwrap();
    let long = "k".repeat(255);
    for (number, spellings) in [
        &["8e03978e-40d5-43dd-bc93-6894a57f9324", "\"8e03978e-40d5-43dd-bc93-6894a57f9324\""][..],
        &["k", "\"k\"", "\"k\";a=1;b", "\t\"k\" "],
        &[&*long, &*format!("\"{long}\"")],
        &["\"';DROP/**/TABLE/**/records;--\""],
        &["\"%0d%0aX-Injected:%201\""],
        &["\"<script>alert(1)</script>\""],
        &["../../etc/passwd", "\"../../etc/passwd\""],
        &["\"${jndi:ldap://a}\""],
    ]
    .into_iter()
    .enumerate()
    {
        for (spelling_number, spelling) in spellings.iter().enumerate() {
            let answered = pay(&gateway, &[spelling.as_bytes()]).await;
            let found = (answered.status(), answered.is_replay());
            assert_eq!(found, (201, spelling_number > 0), "{spelling}");
        }
        assert_eq!(upstream.seen().len(), number + 1);
    }
}
