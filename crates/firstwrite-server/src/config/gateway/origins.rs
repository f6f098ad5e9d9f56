//! Origins and headers of `[gateway.cors]` that no browser could mean.

/// Refuses them, with the reason.
pub(super) fn check(
    origins: &[String],
    has_credentials: bool,
    exposed: &[String],
) -> Result<(), String> {
    for origin in origins.iter().filter(|origin| *origin != "*") {
        if origin.contains('*') {
            return Err(format!(
                "{origin:?}: browsers send exact origins, and one with * in it matches none; name each origin"
            ));
        }
        if !is_spelt_as_sent(origin) {
            return Err(format!(
                "{origin:?} is no origin such as https://shop.example or http://localhost:5173"
            ));
        }
    }
    if has_credentials && exposed.iter().any(|name| name == "*") {
        return Err(
            "expose: with credentials, headers are named: browsers take * for a header of that name"
                .to_owned(),
        );
    }
    Ok(())
}

/// Tells whether host and port are spelt as browsers spell them. Everything else is checked with the rest.
fn is_spelt_as_sent(origin: &str) -> bool {
    let Some((_, authority)) = origin.split_once("://") else { return true };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_host =
        host.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._[]:@/".contains(letter));
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|number| number.to_string() == port);
    is_host && port.is_none_or(is_port)
}
