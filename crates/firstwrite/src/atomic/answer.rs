//! Answers of atomic handlers: whole, since they are committed with the handler's rows.

use bytes::Bytes;
use http::Response;

/// An answer of an atomic handler: a [`Response<Bytes>`], or, with the feature `axum`, whatever axum
/// can send, such as `(StatusCode::CREATED, Json(payment))`.
///
/// The answer is committed with the rows, so its body must be there: one that is a stream becomes a 500, and
/// nothing is committed. `Form` is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an answer that can be committed",
    note = "give an `http::Response<Bytes>`, or, with the feature `axum`, something that is `IntoResponse`"
)]
pub trait AtomicAnswer<Form> {
    #[doc(hidden)]
    fn into_whole(self) -> Response<Bytes>;
}

/// The form of answers that are whole by their type.
#[derive(Debug)]
pub enum Whole {}

impl AtomicAnswer<Whole> for Response<Bytes> {
    fn into_whole(self) -> Self {
        self
    }
}

#[cfg(feature = "axum")]
mod by_axum {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use axum::body::Body;
    use axum::response::IntoResponse;
    use bytes::{Bytes, BytesMut};
    use http::{Response, StatusCode};
    use http_body::Body as _;

    use super::AtomicAnswer;

    /// The form of answers that axum makes.
    #[derive(Debug)]
    pub enum ByAxum {}

    impl<T: IntoResponse> AtomicAnswer<ByAxum> for T {
        fn into_whole(self) -> Response<Bytes> {
            let (parts, body) = self.into_response().into_parts();
            match whole(body) {
                Ok(bytes) => Response::from_parts(parts, bytes),
                Err(problem) => {
                    tracing::error!(problem, "an answer cannot be committed");
                    let mut failed = Response::new(Bytes::new());
                    *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                    failed
                }
            }
        }
    }

    /// Takes a body that is there, without waiting.
    fn whole(mut body: Body) -> Result<Bytes, &'static str> {
        let mut context = Context::from_waker(Waker::noop());
        let mut bytes = BytesMut::new();
        loop {
            match Pin::new(&mut body).poll_frame(&mut context) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        bytes.extend_from_slice(&data);
                    }
                }
                Poll::Ready(None) => return Ok(bytes.freeze()),
                Poll::Ready(Some(Err(_))) => return Err("its body broke off"),
                Poll::Pending => return Err("its body is a stream that has to be waited for"),
            }
        }
    }
}
