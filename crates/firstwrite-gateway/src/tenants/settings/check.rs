//! Rules that must hold between sources.

use super::{Anonymous, Carrier, Settings, SettingsError, Source};

/// Every JSON object begins with a brace, and what follows it in a token's first part makes these
/// the first letters of each token.
const TOKEN_START: &str = "e";

/// One source of each kind, issuers excepted, and none behind one that would always answer first.
pub(super) fn order(sources: &[Source]) -> Result<(), SettingsError> {
    if sources.is_empty() {
        let problem = "at least one source is needed, such as { kind = \"authorization\" }";
        return Err(SettingsError::new("sources", problem));
    }
    for (index, source) in sources.iter().enumerate() {
        let kind = kind(source);
        let before = &sources[..index];
        if !matches!(source, Source::Jwt(_)) && before.iter().any(|it| self::kind(it) == kind) {
            let problem = format!("a second source of the kind {kind}; one can be set");
            return Err(SettingsError::new(format!("sources[{index}]"), problem));
        }
        let is_hidden = before.iter().any(|it| matches!(it, Source::Authorization(_)));
        if is_hidden && matches!(source, Source::Jwt(_) | Source::ApiKeys(_)) {
            let problem = format!(
                "{kind} would never be asked: authorization stands before it and takes any value"
            );
            return Err(SettingsError::new(format!("sources[{index}]"), problem));
        }
    }
    Ok(())
}

/// Allows no other source, and no anonymous callers, where all callers are one tenant.
pub(super) fn single(settings: &Settings) -> Result<(), SettingsError> {
    let has_single = settings.sources.iter().any(|source| matches!(source, Source::Single(_)));
    if has_single && settings.sources.len() > 1 {
        let problem = "single stands alone: it takes every request, whoever sends it";
        return Err(SettingsError::new("sources", problem));
    }
    if has_single && settings.anonymous != Anonymous::Never {
        let problem = "with the source single nobody is anonymous: leave it out";
        return Err(SettingsError::new("anonymous", problem));
    }
    Ok(())
}

/// Tokens and API keys that come in the same header can be told apart by how they begin.
pub(super) fn bearers(sources: &[Source]) -> Result<(), SettingsError> {
    if !sources.iter().any(|source| matches!(source, Source::Jwt(_))) {
        return Ok(());
    }
    for (index, source) in sources.iter().enumerate() {
        let Source::ApiKeys(settings) = source else { continue };
        let is_mistakable =
            settings.starts_with.is_empty() || settings.starts_with.starts_with(TOKEN_START);
        if settings.accept.contains(&Carrier::Bearer) && is_mistakable {
            return Err(SettingsError::new(
                format!("sources[{index}].starts_with"),
                "beside jwt, API keys need a beginning of their own, and not \"e\"; or take \
                 \"bearer\" out of `accept`",
            ));
        }
    }
    Ok(())
}

/// Names from different sources meet where that was said, and nowhere else.
pub(super) fn namespaces(sources: &[Source]) -> Result<(), SettingsError> {
    let issuer_count = sources.iter().filter(|source| matches!(source, Source::Jwt(_))).count();
    let mut seen: Vec<&str> = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let setting = || format!("sources[{index}].namespace");
        let namespace = match source {
            Source::Jwt(settings) => match &settings.namespace {
                None if issuer_count > 1 => {
                    return Err(SettingsError::new(
                        setting(),
                        "must be given for each of several issuers, such as \"corp:\"; the same \
                         one, or \"\", says that equal names are the same tenant",
                    ));
                }
                namespace => namespace.as_deref().unwrap_or_default(),
            },
            Source::Header(settings) => &settings.namespace,
            Source::Certificate(settings) => &settings.namespace,
            Source::Single(_) | Source::Authorization(_) | Source::ApiKeys(_) => continue,
        };
        let overlaps = |other: &&str| {
            *other != namespace && (other.starts_with(namespace) || namespace.starts_with(other))
        };
        if let Some(other) = seen.iter().find(|other| overlaps(other)) {
            let problem = format!(
                "{namespace:?} and {other:?} overlap: a name of one could be made to look like a \
                 name of the other; use the same or unlike ones"
            );
            return Err(SettingsError::new(setting(), problem));
        }
        seen.push(namespace);
    }
    Ok(())
}

/// The kinds of sources whose tenants are called by the bare name that a credential holds.
pub(super) fn without_namespace(sources: &[Source]) -> Vec<&'static str> {
    let is_bare = |source: &&Source| match source {
        Source::Jwt(settings) => settings.namespace.as_deref().unwrap_or_default().is_empty(),
        Source::Header(settings) => settings.namespace.is_empty(),
        Source::Certificate(settings) => settings.namespace.is_empty(),
        Source::ApiKeys(_) => true,
        Source::Single(_) | Source::Authorization(_) => false,
    };
    sources.iter().filter(is_bare).map(kind).collect()
}

/// A list of operations names operations.
pub(super) fn anonymous(anonymous: &Anonymous) -> Result<(), SettingsError> {
    let Anonymous::Operations(names) = anonymous else { return Ok(()) };
    for name in names {
        let is_operation = name.split_once(' ').is_some_and(|(method, path)| {
            !method.is_empty()
                && method.bytes().all(|byte| byte.is_ascii_uppercase())
                && path.starts_with('/')
        });
        if !is_operation {
            let problem = format!("{name:?} is no operation; such as \"POST /sign-up\" is needed");
            return Err(SettingsError::new("anonymous", problem));
        }
    }
    Ok(())
}

fn kind(source: &Source) -> &'static str {
    match source {
        Source::Single(_) => "single",
        Source::Authorization(_) => "authorization",
        Source::Jwt(_) => "jwt",
        Source::ApiKeys(_) => "api-keys",
        Source::Header(_) => "header",
        Source::Certificate(_) => "certificate",
    }
}
