//! Tests of bodies: prefixes, pieces, and gathering under a cap.

use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::{Full, StreamBody};
use tokio::sync::mpsc;

use super::*;

fn prefixed(prefix: &'static str, rest: &'static str) -> ResponseBody {
    let rest = ResponseBody::passed(Full::from(Bytes::from(rest)));
    ResponseBody::prefixed(Bytes::from(prefix), rest)
}

#[tokio::test]
async fn a_prefix_and_the_rest_are_the_whole() {
    let body = prefixed("abc", "def");
    assert_eq!(body.size_hint().exact(), Some(6));
    assert!(!body.is_end_stream());
    assert_eq!(body.collect().await.unwrap().to_bytes(), "abcdef");
    assert!(prefixed("", "").is_end_stream());
}

#[tokio::test]
async fn a_body_within_the_cap_is_joined_and_one_beyond_it_is_not_lost() {
    let whole = gather(prefixed("ab", "cd"), 4, None, None).await.unwrap();
    assert!(matches!(whole, Gathered::Whole(bytes) if bytes == "abcd"));
    let over = gather(prefixed("abcd", "ef"), 3, None, None).await.unwrap();
    let Gathered::Over { prefix, rest } = over else { panic!("it is over the cap") };
    let again = ResponseBody::prefixed(prefix, rest);
    assert_eq!(again.collect().await.unwrap().to_bytes(), "abcdef");
}

#[tokio::test]
async fn what_has_no_room_is_passed_on_unless_it_has_ended() {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let room = Room::new(move |more| count.fetch_add(more, Ordering::Relaxed) + more <= 3);
    let (sender, body) = sent();
    for piece in ["ab", "cd", "ef"] {
        sender.send(Bytes::from(piece)).unwrap();
    }
    drop(sender);
    let gathered = gather(body, 1000, None, Some(&room)).await.unwrap();
    assert_eq!(taken.load(Ordering::Relaxed), 4, "the rest is not asked for");
    let Gathered::Over { prefix, rest } = gathered else { panic!("there is no room for it") };
    assert_eq!(prefix, "abcd");
    let all = ResponseBody::prefixed(prefix, rest).collect().await.unwrap().to_bytes();
    assert_eq!(all, "abcdef");
    let whole = gather(Full::from(Bytes::from("here")), 1000, None, Some(&room)).await.unwrap();
    assert!(matches!(whole, Gathered::Whole(bytes) if bytes == "here"), "it takes no more room");
    assert_eq!(taken.load(Ordering::Relaxed), 8, "but counts");
}

#[tokio::test]
async fn an_empty_body_is_empty() {
    assert_eq!(read(Full::<Bytes>::default(), 0).await.unwrap(), "");
    assert!(ResponseBody::whole(Bytes::new()).is_end_stream());
}

/// Returns a body, and the channel that its pieces are sent to.
fn sent() -> (mpsc::UnboundedSender<Bytes>, ResponseBody) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let pieces = futures_util::stream::poll_fn(move |context| {
        receiver
            .poll_recv(context)
            .map(|piece| piece.map(|piece| Ok::<_, BoxError>(Frame::data(piece))))
    });
    (sender, ResponseBody::passed(StreamBody::new(pieces)))
}

#[tokio::test]
async fn pieces_become_one_and_are_let_go() {
    let buffer = Bytes::from(vec![b'x'; 100_000]);
    let (sender, body) = sent();
    for at in 0..1000 {
        sender.send(buffer.slice(at..=at)).unwrap();
    }
    drop(sender);
    let Gathered::Whole(whole) = gather(body, 1000, None, None).await.unwrap() else {
        panic!("it is within the cap")
    };
    assert_eq!(whole, vec![b'x'; 1000]);
    assert!(buffer.is_unique(), "a piece holds the buffer that it came in");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_is_gathered_for_so_long_and_then_passed_on() {
    let (sender, body) = sent();
    let until = Instant::now() + Duration::from_mins(10);
    let sending = tokio::spawn(async move {
        for _ in 0..60 {
            tokio::time::sleep_until(Instant::now() + Duration::from_mins(1)).await;
            sender.send(Bytes::from_static(b"x")).unwrap();
        }
    });
    let gathered = gather(body, 1000, Some(until), None).await.unwrap();
    assert_eq!(Instant::now(), until);
    let Gathered::Over { prefix, rest } = gathered else { panic!("it has not ended") };
    assert!((9..=10).contains(&prefix.len()), "{}", prefix.len());
    let all = ResponseBody::prefixed(prefix, rest).collect().await.unwrap().to_bytes();
    assert_eq!(all.len(), 60);
    sending.await.unwrap();
}
