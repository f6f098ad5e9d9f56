//! Answers of the API that is asked, for [`crate::fuzzing`].

use std::io::Cursor;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf, join, sink};
use tokio::runtime::{Builder, Runtime};

use super::answer::Answer;
use super::connection::{Connection, Silence};

/// Answers of a server, with bodies of every framing: they are the same in whatever pieces they arrive, and hold
/// no byte that was not sent.
pub(crate) fn answer(bytes: &[u8]) {
    thread_local! {
        static RUNTIME: Option<Runtime> = Builder::new_current_thread().enable_time().build().ok();
    }
    RUNTIME.with(|runtime| {
        let Some(runtime) = runtime else { return };
        let whole = runtime.block_on(answers(bytes, usize::MAX));
        for size in [1, 3] {
            let in_pieces = runtime.block_on(answers(bytes, size));
            assert_eq!(in_pieces, whole, "another answer in pieces of {size}");
        }
        for answer in whole.iter().filter_map(|one| one.as_ref().ok()) {
            check(answer, bytes);
        }
    });
}

fn check(answer: &Answer, bytes: &[u8]) {
    assert!(answer.headers.iter().all(|(name, _)| *name == name.to_ascii_lowercase()));
    assert!(answer.body.len() <= bytes.len(), "a body longer than what came");
    // The data of chunks is not contiguous; every other body is.
    let is_chunked = answer.header("transfer-encoding").is_some();
    let is_there = answer.body.is_empty()
        || bytes.windows(answer.body.len()).any(|window| window == answer.body);
    assert!(is_chunked || is_there, "a body that did not come");
    if let Some(length) = answer.header("content-length").filter(|_| !is_chunked)
        && answer.status >= 200
        && !matches!(answer.status, 204 | 304)
    {
        assert!(length.bytes().all(|byte| byte.is_ascii_digit()), "a length that is no number");
        assert_eq!(length.parse(), Ok(answer.body.len()), "another length than it says");
    }
}

/// Reads answers until the connection ends, at most as many as there are bytes.
async fn answers(bytes: &[u8], size: usize) -> Vec<Result<Answer, Silence>> {
    let stream = join(Pieces { bytes: Cursor::new(bytes.to_vec()), size }, sink());
    let mut connection = Connection::over(stream, Duration::from_mins(1));
    let mut found = Vec::new();
    loop {
        let one = connection.any_answer().await;
        let is_last = one.is_err() || found.len() > bytes.len();
        found.push(one);
        if is_last {
            return found;
        }
    }
}

/// Bytes that arrive in pieces of at most `size`.
struct Pieces {
    bytes: Cursor<Vec<u8>>,
    size: usize,
}

impl AsyncRead for Pieces {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let Self { bytes, size } = self.get_mut();
        let mut piece = buffer.take(*size);
        let read = Pin::new(bytes).poll_read(context, &mut piece);
        let count = piece.filled().len();
        buffer.advance(count);
        read
    }
}
