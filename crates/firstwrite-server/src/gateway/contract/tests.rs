//! Settings that make used keys unknown, and those that do not.

use firstwrite_core::{MemoryStore, Timestamp};
use firstwrite_gateway::tenants::Tenants;

use super::*;

fn contract(forward_key: &str, binds_others: bool, binds: &[(&str, bool)]) -> Contract {
    let binds = binds.iter().map(|(name, is)| ((*name).to_owned(), *is)).collect();
    let (service, forward_key) = (String::new(), forward_key.to_owned());
    Contract { service, forward_key, binds_others, binds, tenants: None, places: None }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(|| Timestamp::from_millis(0)))
}

fn naming(tenants: &[&str]) -> Contract {
    let tenants = tenants.iter().map(|text| (*text).to_owned()).collect();
    Contract { tenants: Some(tenants), ..contract("derived", false, &[]) }
}

#[tokio::test]
async fn the_key_that_is_passed_on_is_told_where_there_is_one_service() {
    let store = [memory()];
    assert_eq!(Contract::forward_key_of(&*store[0]).await, None);
    contract("original", false, &[]).keep(&store, Changed::Refuse).await.unwrap();
    assert_eq!(Contract::forward_key_of(&*store[0]).await, Some(ForwardKey::Original));
    contract("nothing", false, &[]).keep(&store, Changed::Accept).await.unwrap();
    assert_eq!(Contract::forward_key_of(&*store[0]).await, Some(ForwardKey::Nothing));
    let other = Contract { service: "other".into(), ..contract("nothing", false, &[]) };
    other.keep(&store, Changed::Refuse).await.unwrap();
    assert_eq!(Contract::forward_key_of(&*store[0]).await, None, "two services");
}

#[tokio::test]
async fn other_names_for_callers_are_refused_until_they_are_accepted() {
    let store = [memory()];
    // A note from before names were kept.
    let former = contract("derived", false, &[]);
    former.keep(&store, Changed::Refuse).await.unwrap();
    let mut last = naming(&["api-keys", "jwt of a by sub"]);
    last.keep(&store, Changed::Refuse).await.unwrap();
    let more = naming(&["api-keys", "jwt of a by sub", "jwt of b by sub"]);
    more.keep(&store, Changed::Refuse).await.unwrap();
    last = more;
    for other in [
        &["authorization"][..],
        &["api-keys", "jwt of a by sub"],
        &["api-keys", "jwt of a by sub", "jwt of b by sub", "authorization"],
        &["jwt of a by sub", "jwt of b by sub", "api-keys"],
        &["api-keys", "jwt of a by /org", "jwt of b by sub"],
        &["authorization keyed by secret 1234"],
        &["authorization"],
        &["jwt of a by sub"],
    ] {
        let other = naming(other);
        let refused = other.keep(&store, Changed::Refuse).await.unwrap_err().to_string();
        assert!(refused.contains("tenants were named by"), "{refused}");
        last.keep(&store, Changed::Refuse).await.unwrap();
        other.keep(&store, Changed::Accept).await.unwrap();
        last = other;
    }
}

#[tokio::test]
async fn a_change_that_makes_used_keys_unknown_is_refused_until_it_is_accepted() {
    let store = [memory()];
    let first = contract("derived", false, &[("POST /pay", true)]);
    first.keep(&store, Changed::Refuse).await.unwrap();
    first.keep(&store, Changed::Refuse).await.unwrap();
    for (other, why) in [
        (contract("original", false, &[("POST /pay", true)]), "forward_key was \"derived\""),
        (contract("derived", false, &[]), "keys of POST /pay were bound"),
        (contract("derived", true, &[("POST /pay", true)]), "operations without a section"),
    ] {
        let refused = other.keep(&store, Changed::Refuse).await.unwrap_err().to_string();
        assert!(refused.contains(why) && refused.contains("--accept-changed-keys"), "{refused}");
    }
    let second = contract("original", false, &[]);
    second.keep(&store, Changed::Accept).await.unwrap();
    second.keep(&store, Changed::Refuse).await.unwrap();
    assert!(first.keep(&store, Changed::Refuse).await.is_err());
}

#[tokio::test]
async fn what_changes_no_key_and_other_services_are_let_in() {
    let store = [memory()];
    contract("derived", false, &[]).keep(&store, Changed::Refuse).await.unwrap();
    let named = contract("derived", false, &[("POST /pay", false)]);
    named.keep(&store, Changed::Refuse).await.unwrap();
    let other = Contract { service: "other".into(), ..contract("original", true, &[]) };
    other.keep(&store, Changed::Refuse).await.unwrap();
    named.keep(&store, Changed::Refuse).await.unwrap();
}

/// The contract of a gateway with these settings of tenants, and these operations and whether they bind keys.
fn configured(tenants: &str, operations: &[(&str, bool)]) -> Contract {
    let settings = toml::from_str(tenants).unwrap();
    let tenants = Tenants::new(&settings, || std::time::UNIX_EPOCH).unwrap();
    let binds = operations.iter().map(|(name, is)| ((*name).to_owned(), *is)).collect();
    Contract {
        tenants: Some(tenants.naming(false)),
        places: Some(tenants.places()),
        ..Contract { binds, ..contract("derived", false, &[]) }
    }
}

async fn is_refused(known: &Contract, changed: &Contract) -> Option<String> {
    let store = [memory()];
    known.keep(&store, Changed::Refuse).await.unwrap();
    changed.keep(&store, Changed::Refuse).await.err().map(|error| error.to_string())
}

/// Settings by which a caller may become another tenant although the list of sources stays.
#[tokio::test]
async fn credentials_that_are_read_elsewhere_are_refused_until_they_are_accepted() {
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let keys = |more: &str| {
        format!(
            "sources = [{{ kind = 'api-keys', keys = [{{ sha256 = '{digest}', tenant = 'acme' }}] {more} }}, \
             {{ kind = 'authorization' }}]"
        )
    };
    let header = |anonymous: &str, peer: &str| {
        format!(
            "anonymous = {anonymous}\nsources = [{{ kind = 'header', tenant = 'x-tenant', peers = ['{peer}'] }}]"
        )
    };
    let usual = keys(", starts_with = 'sk_'");
    for (known, changed, refused) in [
        (usual.clone(), keys(", starts_with = 'sk_live_'"), true),
        // What begins so was left to the next source.
        (usual.clone(), keys(", starts_with = 'sk'"), true),
        (usual.clone(), keys(", starts_with = 'sk_', accept = ['bearer']"), true),
        (usual.clone(), keys(", starts_with = 'sk_', header = 'x-api-key'"), true),
        (usual.clone(), keys(", starts_with = 'sk_', accept = ['basic', 'bearer']"), false),
        (usual.clone(), usual.replace("ba78", "ca78"), false),
        (header("true", "10.0.0.1"), header("true", "10.0.0.2"), true),
        (header("['POST /a']", "10.0.0.1"), header("['POST /a']", "10.0.0.2"), true),
        (header("false", "10.0.0.1"), header("false", "10.0.0.2"), false),
        // The addresses may have changed unnoticed before.
        (header("false", "10.0.0.1"), header("true", "10.0.0.1"), true),
        (header("true", "10.0.0.1"), header("['POST /a']", "10.0.0.1"), false),
    ] {
        let told = is_refused(&configured(&known, &[]), &configured(&changed, &[])).await;
        assert_eq!(told.is_some(), refused, "{known} {changed}: {told:?}");
        let says =
            |it: &String| it.contains("credentials of tenants") && it.contains("--accept-changed");
        assert!(told.iter().all(says), "{told:?}");
    }
}

/// A note from before places were kept says nothing of them.
#[tokio::test]
async fn a_note_without_places_is_taken_over() {
    let with = configured("sources = [{ kind = 'authorization' }]", &[]);
    let former = Contract { places: None, ..with.clone() };
    assert_eq!(is_refused(&former, &with).await, None);
}

/// Bindings are compared for each path that a request can have.
#[tokio::test]
async fn operations_that_bind_otherwise_are_refused_whatever_pattern_decides() {
    let any = "POST /{a}/pay";
    for (known, changed, refused) in [
        // Another name for the same paths.
        (&[(any, true)][..], &[("POST /{b}/pay", true)][..], false),
        // A narrower pattern inside of a wide one.
        (&[(any, true)], &[(any, true), ("POST /x/pay", true)], false),
        (&[(any, true)], &[(any, true), ("POST /x/pay", false)], true),
        (&[(any, true), ("POST /x/pay", false)], &[(any, true)], true),
        (&[(any, true), ("POST /x/pay", false)], &[(any, true), ("POST /x/pay", false)], false),
        (&[], &[("POST /{*rest}", true)], true),
        (&[(any, true)], &[("POST /{*rest}", true)], true),
        // Two patterns of which neither holds the other's paths.
        (&[(any, true)], &[(any, true), ("POST /x/{b}", false)], true),
        (&[(any, true)], &[(any, true), ("PUT /x/{b}", false)], false),
        (&[(any, true)], &[(any, true), ("POST /x/{b}/c", false)], false),
        (&[(any, true)], &[(any, true), ("POST /x/{*b}", false)], true),
        // The narrowest decides, however wide another is.
        (
            &[(any, false), ("POST /{*rest}", true)],
            &[("POST /x/pay", false), (any, false), ("POST /{*rest}", true)],
            false,
        ),
    ] {
        let tenants = "sources = [{ kind = 'authorization' }]";
        let told = is_refused(&configured(tenants, known), &configured(tenants, changed)).await;
        assert_eq!(told.is_some(), refused, "{known:?} {changed:?}: {told:?}");
    }
}
