//! Pages of problems, the base of their addresses, and a layer around ours that speaks for origins.

use bytes::Bytes;
use firstwrite_core::{Policy, ProblemBase};
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, ORIGIN};
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

use super::harness::{RequestBody, World, answer, post};

fn world() -> World {
    World::new(Policy::default(), |_, _| async { Ok(answer(201, "made")) })
}

fn get(path: &str) -> Request<RequestBody> {
    Request::builder().uri(path).body(Full::<Bytes>::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn anybody_may_read_the_page_of_a_problem() {
    let page = world().send(get("/.firstwrite/problems/key-reused")).await;
    assert_eq!(
        (page.status.as_u16(), page.header("content-type")),
        (200, Some("text/markdown; charset=utf-8"))
    );
    let unknown = world().send(get("/.firstwrite/problems/no-such-code")).await;
    assert_eq!((unknown.status.as_u16(), &unknown.json()["code"]), (404, &"not-found".into()));
}

#[tokio::test(start_paused = true)]
async fn types_lead_to_the_base_that_was_given() {
    let world = world();
    let base = ProblemBase::new("https://shop.example/errors/").unwrap();
    let layer = world.layer.clone().problem_base(base);
    let inner = service_fn(|_: Request<RequestBody>| async {
        Ok::<_, firstwrite_core::BoxError>(answer(201, "made"))
    });
    let mut request = post("k", "{}");
    request.headers_mut().remove("idempotency-key");
    let refused = layer.layer(inner).oneshot(request).await.unwrap();
    let body = http_body_util::BodyExt::collect(refused.into_body()).await.unwrap().to_bytes();
    let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(document["type"], "https://shop.example/errors/key-missing");
}

/// The order that the guide gives for tower-http's `CorsLayer`: it is the outer one.
#[tokio::test(start_paused = true)]
async fn a_layer_outside_of_ours_speaks_of_every_answer_for_its_own_origin() {
    let world = world();
    let inner = world.service.clone();
    let mut outer = service_fn(move |request: Request<RequestBody>| {
        let origin = request.headers().get(ORIGIN).cloned();
        let mut inner = inner.clone();
        async move {
            let mut response = inner.call(request).await?;
            if let Some(origin) = origin {
                response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            }
            Ok::<Response<_>, firstwrite_core::BoxError>(response)
        }
    });
    for (key, body, origin, status) in [
        ("k", "{}", "https://a.example", 201),
        ("k", "{}", "https://b.example", 201),
        ("k", "[]", "https://a.example", 422),
        ("", "{}", "https://b.example", 400),
    ] {
        let mut request = post(key, body);
        request.headers_mut().insert(ORIGIN, HeaderValue::from_static(origin));
        let response = outer.call(request).await.unwrap();
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(response.headers()[ACCESS_CONTROL_ALLOW_ORIGIN], origin);
    }
}
