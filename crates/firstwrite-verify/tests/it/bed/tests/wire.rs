//! Bodies, connections, and callers that hang up.

use std::time::Duration;

use tokio::time::{interval, timeout};

use super::super::Bed;
use super::client::{Ask, Connection, PATIENCE, in_flight};
use super::{Seen, effects, ensure, promises};

promises! {
    a_body_may_come_in_pieces: [];
    a_cut_body_leaves_nothing_behind: [ReservesBeforeBody];
    who_hangs_up_changes_nothing: [CutRunsAgain, ReplyBeforeRecord];
    who_hangs_up_at_once_changes_nothing: [CutRunsAgain, ReplyBeforeRecord];
    a_caller_who_asks_is_told_to_go_on: [IgnoresExpect];
    a_refused_body_is_no_request: [UnreadBody];
    a_replayed_body_is_no_request: [UnreadBody];
    requests_may_come_in_one_piece: [];
    too_much_is_refused: [];
    what_can_be_read_in_two_ways_is_refused: [];
}

const ORDER: &[u8] = br#"{"amount":100}"#;

async fn a_body_may_come_in_pieces(bed: Bed) -> Seen {
    let mut connection = Connection::to(&bed).await?;
    let chunked = Ask::order("chunked").head("Transfer-Encoding: chunked\r\n");
    connection.write(&chunked).await?;
    for piece in ["3;x=y\r\n{\"a\r\n", "b\r\nmount\":100}\r\n", "0\r\nTrailer: 1\r\n", "\r\n"] {
        connection.write(piece.as_bytes()).await?;
        // An answer from another connection: by then the piece has arrived by itself.
        Ask::get("/count").send(&bed).await?.has_status(200)?;
    }
    connection.reply().await?.has_status(201)?;
    // On the same connection, byte by byte.
    for byte in Ask::order("slowly").bytes() {
        connection.write(&[byte]).await?;
    }
    connection.reply().await?.has_status(201)?;
    effects(&bed, 2)
}

async fn a_cut_body_leaves_nothing_behind(bed: Bed) -> Seen {
    const DEADLINE: Duration = Duration::from_secs(3);
    let ask = Ask::order("cut");
    let mut connection = Connection::to(&bed).await?;
    let head = ask.head("Content-Length: 14\r\nExpect: 100-continue\r\n");
    connection.write(&head).await?;
    // The head has been read when this is answered.
    connection.reply().await?;
    connection.write(&ORDER[..7]).await?;
    drop(connection);
    ask.settle(&bed, DEADLINE).await?.has_status(201)?;
    effects(&bed, 1)
}

async fn who_hangs_up_changes_nothing(bed: Bed) -> Seen {
    let ask = Ask::order("gone").slow(Duration::from_millis(500));
    drop(in_flight(&ask, &bed).await?);
    ask.settle(&bed, PATIENCE).await?;
    effects(&bed, 1)
}

async fn who_hangs_up_at_once_changes_nothing(bed: Bed) -> Seen {
    let ask = Ask::order("gone");
    let mut connection = Connection::to(&bed).await?;
    connection.write(&ask.bytes()).await?;
    drop(connection);
    until_effects(&bed, 1).await?;
    ask.settle(&bed, PATIENCE).await?;
    effects(&bed, 1)
}

async fn until_effects(bed: &Bed, expected: usize) -> Seen {
    let looking = async {
        let mut again = interval(Duration::from_millis(5));
        while bed.effects() < expected {
            again.tick().await;
        }
    };
    timeout(PATIENCE, looking).await.map_err(|_elapsed| "no effect".to_owned())
}

async fn a_caller_who_asks_is_told_to_go_on(bed: Bed) -> Seen {
    let mut connection = Connection::to(&bed).await?;
    let head = Ask::order("expect").head("Content-Length: 14\r\nExpect: 100-continue\r\n");
    connection.write(&head).await?;
    connection.reply().await?.has_status(100)?;
    connection.write(ORDER).await?;
    connection.reply().await?.has_status(201)?;
    effects(&bed, 1)
}

/// A body that would run if it were taken for a request; its key is of an order that is not made.
fn smuggled() -> Vec<u8> {
    Ask::order("smuggled").bytes()
}

async fn a_refused_body_is_no_request(bed: Bed) -> Seen {
    next_is_the_count(&bed, Ask::order("first"), 1).await
}

async fn a_replayed_body_is_no_request(bed: Bed) -> Seen {
    next_is_the_count(&bed, Ask::order("first").body(smuggled()), 0).await
}

/// After this request and the one with the other body, the next answer is that to the next request.
async fn next_is_the_count(bed: &Bed, first: Ask, expected: usize) -> Seen {
    let mut connection = Connection::to(bed).await?;
    let second = first.clone().body(smuggled());
    for ask in [first, second] {
        connection.write(&ask.bytes()).await?;
        connection.reply().await?;
    }
    connection.write(&Ask::get("/count").bytes()).await?;
    let count = connection.reply().await?;
    ensure(count.body == format!(r#"{{"count":{expected}}}"#), || {
        format!("not asked for: {count:?}")
    })?;
    effects(bed, expected)
}

async fn requests_may_come_in_one_piece(bed: Bed) -> Seen {
    let mut connection = Connection::to(&bed).await?;
    let asks = [Ask::order("a"), Ask::get("/count"), Ask::order("b"), Ask::get("/other")];
    connection.write(&asks.iter().flat_map(Ask::bytes).collect::<Vec<_>>()).await?;
    for status in [201, 200, 201, 404] {
        connection.reply().await?.has_status(status)?;
    }
    let last = Ask::order("c").and("Connection", "close");
    connection.write(&last.bytes()).await?;
    let reply = connection.reply().await?;
    reply.has_status(201)?;
    let hops = reply.header("Connection");
    ensure(hops == Some("close, X-Hop"), || format!("no word about closing: {hops:?}"))?;
    connection.ends().await?;
    effects(&bed, 3)
}

async fn too_much_is_refused(bed: Bed) -> Seen {
    let long = Ask::order("long").and("X-Long", "x".repeat(17 * 1024));
    long.send(&bed).await?.is_refusal(431)?;
    let mut large = ORDER.to_vec();
    large.resize(64 * 1024, b' ');
    let largest = Ask::order("large").body(large.clone());
    largest.send(&bed).await?.has_status(201)?;
    large.push(b' ');
    Ask::order("larger").body(large.clone()).send(&bed).await?.is_refusal(413)?;
    let mut connection = Connection::to(&bed).await?;
    let head = Ask::order("chunked").head("Transfer-Encoding: chunked\r\n");
    connection.write(&[head, b"10001\r\n".into()].concat()).await?;
    connection.reply().await?.is_refusal(413)?;
    effects(&bed, 1)
}

async fn what_can_be_read_in_two_ways_is_refused(bed: Bed) -> Seen {
    for more in [
        "Content-Length: 14\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 14\r\nContent-Length: 13\r\n",
        "Content-Length: +14\r\n",
        "Transfer-Encoding: gzip\r\n",
    ] {
        let mut connection = Connection::to(&bed).await?;
        connection.write(&[Ask::order("two").head(more), ORDER.into()].concat()).await?;
        connection.reply().await?.is_refusal(400)?;
        connection.ends().await?;
    }
    effects(&bed, 0)
}
