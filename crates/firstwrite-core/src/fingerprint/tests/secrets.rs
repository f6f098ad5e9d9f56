//! Effects of a secret on fingerprints, and the ways in which a stored fingerprint is compared.

use super::*;

#[test]
fn a_secret_changes_digest_and_parts() {
    let plain = example(r#"{"a":1}"#);
    let keyed = |first| plain.clone().with(|request| request.secret = Some(secret(first)));
    let (one, other) = (keyed(1), keyed(2));
    for (a, b) in [(&plain, &one), (&plain, &other), (&one, &other)] {
        assert_eq!(a.fingerprint().compare(&b.fingerprint()), Comparison::OtherWay);
        assert_ne!(a.fingerprint().digest(), b.fingerprint().digest());
        assert_ne!(a.fingerprint().parts(), b.fingerprint().parts());
    }
    assert!(one.is_same_as(&one.clone()));
    assert_eq!(format!("{one:?}", one = one.secret.unwrap()), "Secret(…)");
    assert!(Secret::new(&[0; 15]).is_err());
    assert!(Secret::new(&[7; 32]).is_err(), "a placeholder");
    assert!(Secrets::new(vec![secret(1), secret(2), secret(1)]).is_err());
}

#[test]
fn equal_requests_under_two_keys_cannot_be_told_by_their_digests() {
    let other = RecordId::from_bytes([9; 16]);
    for secret in [None, Some(secret(1))] {
        let request = example(r#"{"card":"4111111111110042"}"#).with(|it| it.secret = secret);
        let by = request.secret.as_ref();
        let elsewhere = Fingerprint::of(&request.parts(), &request.rules, by, &other);
        assert_ne!(request.fingerprint().digest(), elsewhere.digest(), "keyed: {}", by.is_some());
    }
}

#[test]
fn a_secret_that_is_known_compares_and_another_says_nothing() {
    let first = example(r#"{"amount":1}"#);
    let second = example(r#"{"amount":2}"#);
    let plain = first.fingerprint();
    let keyed = |first: &Example, by| {
        first.clone().with(|request| request.secret = Some(secret(by))).fingerprint()
    };
    let secrets =
        |known: &[u8]| Secrets::new(known.iter().map(|first| secret(*first)).collect()).unwrap();
    let check = |stored: &Fingerprint, known: &[u8], expected: [Option<Comparison>; 2]| {
        let found = [&first, &second].map(|it| it.compared(stored, &secrets(known)));
        assert_eq!(found, expected, "{stored:?} by {known:?}");
    };
    let readable = [Some(Comparison::Same), Some(Comparison::Different)];
    // Switched on, rotated, and with the old one gone.
    check(&plain, &[], readable);
    check(&plain, &[1], readable);
    check(&keyed(&first, 1), &[1], readable);
    check(&keyed(&first, 1), &[2, 1], readable);
    check(&keyed(&first, 1), &[2], [None, None]);
    check(&keyed(&first, 1), &[], [None, None]);
}

#[test]
fn a_tenant_with_a_secret_of_its_own_is_keyed_by_it_and_so_are_its_principals() {
    let tenant = |name: &str| Tenant::new(name).unwrap();
    let own = secret(3).only_for(acme());
    let ring = Secrets::new(vec![secret(1), own, secret(2)]).unwrap();
    let keys = |name: &str| ring.for_taking(&tenant(name)).map(Secret::id);
    assert_eq!(keys("acme"), Some(secret(3).id()));
    assert_eq!(keys("/acme/alice"), Some(secret(3).id()));
    assert_eq!(keys("other"), Some(secret(1).id()));
    let of = |name: &str| ring.of(&tenant(name)).map(Secret::id).collect::<Vec<_>>();
    assert_eq!(of("/acme/alice"), [1, 3, 2].map(|first| secret(first).id()));
    assert_eq!(of("other"), [1, 2].map(|first| secret(first).id()));
    assert_eq!(Secrets::default().for_taking(&acme()).map(Secret::id), None);
}

#[test]
fn what_version_1_took_is_compared_by_its_rules() {
    let request = example(r#"{"amount":1}"#);
    let other = example(r#"{"amount":2}"#);
    let typed = request.clone().content_type("application/vnd.shop+json");
    let known = Secrets::from(secret(1));
    for stored in [
        request.of_version_1(),
        request.clone().with(|request| request.secret = Some(secret(1))).of_version_1(),
    ] {
        assert_eq!(request.compared(&stored, &known), Some(Comparison::Same), "{stored:?}");
        assert_eq!(other.compared(&stored, &known), Some(Comparison::Different), "{stored:?}");
        // It did not look at the content type.
        assert_eq!(typed.compared(&stored, &known), Some(Comparison::Same), "{stored:?}");
        assert_eq!(request.fingerprint().compare(&stored), Comparison::OtherWay);
    }
}

#[test]
fn without_a_secret_nothing_is_kept_of_the_parts() {
    let silent = |body: &str| example(body).with(|request| request.rules.explain = false);
    let first = silent(r#"{"card":{"number":"4012888888881881","cvc":"739"}}"#);
    assert_eq!(first.fingerprint().parts().count(), 0);
    assert_eq!(silent("{}").differing(&first), [""; 0]);
    let keyed = |example: Example| example.with(|request| request.secret = Some(secret(1)));
    let names = keyed(silent(r#"{"card":{"number":"4012888888881881","cvc":"1"}}"#))
        .differing(&keyed(first));
    assert_eq!(names, ["/card/cvc"]);
}
