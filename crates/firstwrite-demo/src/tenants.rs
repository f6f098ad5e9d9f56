//! Whose request it is: two tenants, known by bearer token.
//!
//! A real application verifies a token or a signature here; what matters is that the tenant comes
//! from credentials and never from anything else the caller says.

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Response};
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use firstwrite_core::{Rejection, RejectionKind, Tenant};

/// The caller's tenant, from its credentials.
pub(crate) fn identify(headers: &HeaderMap) -> Result<Tenant, Rejection> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return Err(unknown()) };
    let token =
        line.to_str().ok().and_then(|value| value.split_once(' ')).and_then(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim_matches(' '))
        });
    let name = match token {
        Some("demo-acme") => "acme",
        Some("demo-globex") => "globex",
        Some(_) | None => return Err(unknown()),
    };
    Ok(Tenant::new(name).expect("both names are plain words"))
}

/// Refuses requests without a known token, on every route. Handlers find the tenant in the request's extensions.
pub(crate) async fn require(mut request: Request, next: Next) -> axum::response::Response {
    match identify(request.headers()) {
        Ok(tenant) => {
            request.extensions_mut().insert(tenant);
            next.run(request).await
        }
        Err(rejection) => {
            let mut response: Response<_> = rejection.to_response();
            let challenge = HeaderValue::from_static("Bearer realm=\"firstwrite demo\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            response.map(axum::body::Body::from).into_response()
        }
    }
}

fn unknown() -> Rejection {
    Rejection::new(RejectionKind::TenantUnknown)
        .detail("Send `Authorization: Bearer demo-acme` or `Bearer demo-globex`; nothing was run.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identified(lines: &[&'static str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, HeaderValue::from_static(line));
        }
        identify(&headers).ok().map(|tenant| tenant.to_string())
    }

    #[test]
    fn only_the_two_tokens_are_known() {
        assert_eq!(identified(&["Bearer demo-acme"]).as_deref(), Some("acme"));
        assert_eq!(identified(&["bearer  demo-globex "]).as_deref(), Some("globex"));
        for wrong in [
            &["Bearer demo-other"][..],
            &["Bearer"],
            &["demo-acme"],
            &["Basic demo-acme"],
            &["Bearer demo-acme", "Bearer demo-acme"],
            &[],
        ] {
            assert_eq!(identified(wrong), None, "{wrong:?}");
        }
    }
}
