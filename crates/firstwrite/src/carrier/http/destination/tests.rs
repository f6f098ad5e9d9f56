//! Settings that hold, and settings that do not.

use super::*;

fn refused(destination: HttpDestination) -> String {
    destination.build().unwrap_err().to_string()
}

fn destination() -> HttpDestination {
    HttpDestination::new("http://a.test/hook")
}

#[test]
fn a_url_leads_to_a_host_by_http_and_has_no_password() {
    for (url, reason) in [
        ("", "is no URL"),
        ("ftp://a.test/", "begins with http"),
        ("/hook", "begins with http"),
        ("a.test", "begins with http"),
        ("http:///hook", "is no URL"),
        ("http://user:secret@a.test/", "no user or password"),
        ("http://a.test:99999/", "has a port"),
        ("http://a.test:0/", "has a port"),
        ("http://a.test:/", "has a port"),
        ("http://a.test/a b", "is no URL"),
        ("http://a.test/a\r\nx: y", "is no URL"),
    ] {
        let text = refused(HttpDestination::new(url));
        assert!(text.contains(reason) && !text.contains("secret"), "{url}: {text}");
    }
    for url in ["http://a.test", "HTTP://a.test:8080/x?y", "http://[::1]/", "http://127.0.0.1/"] {
        assert!(HttpDestination::new(url).build().is_ok(), "{url}");
    }
}

#[test]
fn settings_that_contradict_are_refused() {
    let secret: SigningSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX".parse().unwrap();
    let statuses: Statuses = "409".parse().unwrap();
    let value = HeaderValue::from_static("x");
    for (destination, reason) in [
        (destination().method(Method::GET), "POST, PUT or PATCH"),
        (destination().timeout(Duration::ZERO), "longer than zero"),
        (destination().connect_timeout(Duration::ZERO), "longer than zero"),
        (destination().success_statuses(statuses).refusal_statuses(statuses), "two meanings"),
        (
            destination().sign_with(secret.clone()).sign_with(secret.clone()).sign_with(secret),
            "at most two",
        ),
        (destination().header(header::HOST, value.clone()), "header host"),
        (
            destination().header(HeaderName::from_static("webhook-id"), value.clone()),
            "header webhook-id",
        ),
        (destination().header(Key::HEADER, value.clone()), "header idempotency-key"),
        (destination().key_header(header::CONTENT_TYPE), "cannot travel in content-type"),
        (destination().root_certificates(b"no certificate"), "there is none in them"),
        (
            destination().root_certificates(
                b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            ),
            "cannot be used",
        ),
        (
            destination().probe(ProbeSettings::one("http://a.test/", "".parse().unwrap())),
            "the probe's URL has {key}",
        ),
    ] {
        let text = refused(destination);
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn nothing_secret_is_shown() {
    let destination = HttpDestination::new("http://a.test/secret?secret")
        .header(header::AUTHORIZATION, HeaderValue::from_static("secret"));
    assert!(!format!("{destination:?}").contains("secret"));
    let carrier = destination.build().unwrap();
    let shown = format!("{carrier:?}");
    assert!(shown.contains("a.test") && !shown.contains("secret"), "{shown}");
}

#[test]
fn a_status_has_one_meaning_and_is_a_final_answer() {
    let set = |text: &str| text.parse::<Statuses>().unwrap();
    for (settings, reason) in [
        (destination().refusal_statuses(set("200")), "two meanings"),
        (destination().retry_statuses(set("202,429")), "two meanings"),
        (
            destination().success_statuses(set("200,402")).refusal_statuses(set("402")),
            "two meanings",
        ),
        (destination().refusal_statuses(set("100-199")), "1xx"),
        (destination().retry_statuses(set("102")), "1xx"),
        (destination().success_statuses(set("")), "success_statuses is empty"),
    ] {
        let text = refused(settings);
        assert!(text.contains(reason), "{text}");
    }
    let fine = destination().success_statuses(set("200")).refusal_statuses(set("202"));
    assert!(fine.build().is_ok() && destination().retry_statuses(set("400")).build().is_ok());
}
