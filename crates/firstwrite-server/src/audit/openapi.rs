//! What an OpenAPI document (3.x or Swagger 2, YAML or JSON) says changes something.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use axum::http::{Method, Uri};
use serde::Deserialize;

/// An operation that changes something.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) method: Method,
    /// With the base path, as clients ask for it.
    pub(super) path: String,
    pub(super) id: Option<String>,
}

/// The largest public documents have a few megabytes.
const DOCUMENT_BYTES_MAX: u64 = 32 * 1024 * 1024;

#[derive(Debug, Deserialize)]
struct Document {
    openapi: Option<String>,
    swagger: Option<String>,
    #[serde(default)]
    servers: Vec<Server>,
    #[serde(rename = "basePath")]
    base_path: Option<String>,
    #[serde(default)]
    paths: BTreeMap<String, PathItem>,
}

#[derive(Debug, Deserialize)]
struct Server {
    url: String,
}

#[derive(Debug, Default, Deserialize)]
struct PathItem {
    #[serde(rename = "$ref")]
    reference: Option<String>,
    post: Option<Operation>,
    put: Option<Operation>,
    patch: Option<Operation>,
    delete: Option<Operation>,
}

#[derive(Debug, Deserialize)]
struct Operation {
    #[serde(rename = "operationId")]
    id: Option<String>,
}

/// Every operation that changes something, in the order of paths. `base_path`: instead of the document's.
pub(super) fn read(path: &Path, base_path: Option<&str>) -> anyhow::Result<Vec<Described>> {
    let name = path.display();
    let mut text = String::new();
    let file = fs::File::open(path).with_context(|| format!("cannot open {name}"))?;
    file.take(DOCUMENT_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {name}"))?;
    ensure!(text.len() as u64 <= DOCUMENT_BYTES_MAX, "{name} is over {DOCUMENT_BYTES_MAX} bytes");
    parse(&text, base_path).with_context(|| format!("{name} is no OpenAPI document"))
}

fn parse(text: &str, base_path: Option<&str>) -> anyhow::Result<Vec<Described>> {
    let document: Document = if text.trim_start().starts_with('{') {
        serde_json::from_str(text)?
    } else {
        // The lines behind the first draw the place.
        serde_saphyr::from_str(text)
            .map_err(|error| anyhow!("{}", error.to_string().lines().next().unwrap_or_default()))?
    };
    ensure!(
        document.openapi.is_some() || document.swagger.is_some(),
        "it has neither `openapi` nor `swagger`"
    );
    let base = match base_path {
        Some(given) => given.to_owned(),
        None => document.base()?,
    };
    let base = base.trim_end_matches('/');
    let mut described = Vec::new();
    for (path, item) in document.paths {
        ensure!(
            item.reference.is_none(),
            "the path {path} is kept elsewhere ($ref); bundle the document into one file first"
        );
        let path = format!("{base}{path}");
        for (method, operation) in [
            (Method::POST, item.post),
            (Method::PUT, item.put),
            (Method::PATCH, item.patch),
            (Method::DELETE, item.delete),
        ] {
            if let Some(Operation { id }) = operation {
                described.push(Described { method, path: path.clone(), id });
            }
        }
    }
    Ok(described)
}

impl Document {
    /// What stands before every path.
    fn base(&self) -> anyhow::Result<String> {
        if let Some(base) = &self.base_path {
            return Ok(base.clone());
        }
        let mut bases: Vec<String> =
            self.servers.iter().map(|server| path_of(&server.url)).collect();
        bases.dedup();
        match &bases[..] {
            [] => Ok(String::new()),
            [base] => Ok(base.clone()),
            _ => Err(anyhow!("its servers have different paths; say which with --base-path")),
        }
    }
}

/// The path of a server's address; it may be a path alone, and have variables in its host.
fn path_of(url: &str) -> String {
    if url.starts_with('/') {
        return url.to_owned();
    }
    let plain = url.replace(['{', '}'], "");
    plain.parse::<Uri>().map_or_else(|_| String::new(), |uri| uri.path().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, base: Option<&str>) -> Vec<String> {
        let described = parse(text, base).unwrap();
        described.iter().map(|one| format!("{} {}", one.method, one.path)).collect()
    }

    #[test]
    fn what_changes_something_is_found_in_yaml_and_json() {
        let yaml = "openapi: 3.1.0\nservers: [{url: 'https://{region}.example/v1/'}]\npaths:\n  \
                    /payments:\n    get: {}\n    post: {operationId: pay}\n    parameters: []\n  \
                    '/payments/{id}':\n    delete: {}\n    patch: {summary: x}\n";
        let expected = ["POST /v1/payments", "PATCH /v1/payments/{id}", "DELETE /v1/payments/{id}"];
        assert_eq!(found(yaml, None), expected);
        assert_eq!(found(yaml, Some("/v2"))[0], "POST /v2/payments");
        let json = r#"{"swagger":"2.0","basePath":"/api","paths":{"/a":{"put":{}}}}"#;
        assert_eq!(found(json, None), ["PUT /api/a"]);
        assert_eq!(found("openapi: 3.0.0\n", None), [""; 0]);
    }

    #[test]
    fn what_is_no_such_document_is_refused() {
        for (text, word) in [
            ("a: 1\n", "neither"),
            ("[1]", "expected mapping"),
            ("openapi: 3.0.0\npaths: {/a: {$ref: 'b.yaml'}}\n", "bundle"),
            ("openapi: 3.0.0\nservers: [{url: /a}, {url: /b}]\n", "--base-path"),
            ("{", "EOF"),
        ] {
            let error = format!("{:#}", parse(text, None).unwrap_err());
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
