//! Reads the mutating operations from an OpenAPI document (3.x or Swagger 2, YAML or JSON).

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use http::{Method, Uri};
use serde::Deserialize;

use crate::error::Error;

/// An operation that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Described {
    /// POST, PUT, PATCH or DELETE.
    pub method: Method,
    /// With the base path, as clients ask for it.
    pub path: String,
    /// The name that the document gives it.
    pub id: Option<String>,
    /// The headers that it takes, in lower case.
    pub headers: Vec<String>,
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
    #[serde(default)]
    components: Components,
    /// Parameters that references in Swagger 2 point to.
    #[serde(default)]
    parameters: BTreeMap<String, Parameter>,
}

#[derive(Debug, Default, Deserialize)]
struct Components {
    #[serde(default)]
    parameters: BTreeMap<String, Parameter>,
}

#[derive(Debug, Deserialize)]
struct Server {
    url: String,
}

#[derive(Debug, Default, Deserialize)]
struct PathItem {
    #[serde(rename = "$ref")]
    reference: Option<String>,
    #[serde(default)]
    parameters: Vec<Parameter>,
    post: Option<Operation>,
    put: Option<Operation>,
    patch: Option<Operation>,
    delete: Option<Operation>,
}

#[derive(Debug, Deserialize)]
struct Operation {
    #[serde(rename = "operationId")]
    id: Option<String>,
    #[serde(default)]
    parameters: Vec<Parameter>,
}

#[derive(Debug, Deserialize)]
struct Parameter {
    #[serde(rename = "$ref")]
    reference: Option<String>,
    #[serde(rename = "in")]
    place: Option<String>,
    name: Option<String>,
}

/// Every operation that changes something, in the order of paths. `base_path`: instead of the document's.
pub fn read(path: &Path, base_path: Option<&str>) -> Result<Vec<Described>, Error> {
    let name = path.display();
    let mut text = String::new();
    let cannot_open = |error| Error::failed(format!("cannot open {name}: {error}"));
    // A pipe or a device would be waited for, perhaps for ever.
    if !fs::metadata(path).map_err(cannot_open)?.is_file() {
        return Err(Error::failed(format!("cannot open {name}: it is not a regular file")));
    }
    let file = fs::File::open(path).map_err(cannot_open)?;
    file.take(DOCUMENT_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| Error::failed(format!("cannot read {name}: {error}")))?;
    if text.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(Error::failed(format!("{name} is over {DOCUMENT_BYTES_MAX} bytes")));
    }
    parse(&text, base_path)
        .map_err(|why| Error::failed(format!("{name} is no OpenAPI document: {why}")))
}

fn parse(text: &str, base_path: Option<&str>) -> Result<Vec<Described>, String> {
    let mut document: Document = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| error.to_string())?
    } else {
        // The lines behind the first draw the place.
        serde_saphyr::from_str(text)
            .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?
    };
    if document.openapi.is_none() && document.swagger.is_none() {
        return Err("it has neither `openapi` nor `swagger`".to_owned());
    }
    let base = match base_path {
        Some(given) => given.to_owned(),
        None => document.base()?,
    };
    let base = base.trim_end_matches('/');
    let mut described = Vec::new();
    for (path, item) in std::mem::take(&mut document.paths) {
        if item.reference.is_some() {
            return Err(format!(
                "the path {path} is kept elsewhere ($ref); bundle the document into one file first"
            ));
        }
        let shared = document.headers(&item.parameters);
        let path = format!("{base}{path}");
        for (method, operation) in [
            (Method::POST, item.post),
            (Method::PUT, item.put),
            (Method::PATCH, item.patch),
            (Method::DELETE, item.delete),
        ] {
            if let Some(Operation { id, parameters }) = operation {
                let own = document.headers(&parameters);
                let headers = shared.iter().cloned().chain(own).collect();
                described.push(Described { method, path: path.clone(), id, headers });
            }
        }
    }
    Ok(described)
}

impl Document {
    /// Returns the prefix of every path.
    fn base(&self) -> Result<String, String> {
        if let Some(base) = &self.base_path {
            return Ok(base.clone());
        }
        let mut bases: Vec<String> =
            self.servers.iter().map(|server| path_of(&server.url)).collect();
        bases.dedup();
        match &bases[..] {
            [] => Ok(String::new()),
            [base] => Ok(base.clone()),
            _ => Err("its servers have different paths; say which with --base-path".to_owned()),
        }
    }

    /// The names of headers among these, in lower case.
    fn headers(&self, parameters: &[Parameter]) -> Vec<String> {
        parameters
            .iter()
            .filter_map(|parameter| match &parameter.reference {
                Some(reference) => {
                    let name = reference.rsplit('/').next()?;
                    self.components.parameters.get(name).or_else(|| self.parameters.get(name))
                }
                None => Some(parameter),
            })
            .filter(|parameter| parameter.place.as_deref() == Some("header"))
            .filter_map(|parameter| Some(parameter.name.as_ref()?.to_ascii_lowercase()))
            .collect()
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
    fn headers_are_found_where_they_are_declared() {
        let text = r##"{"openapi":"3.0.0","components":{"parameters":{"Key":
            {"in":"header","name":"Idempotency-Key"}}},"paths":{
            "/a":{"post":{"parameters":[{"$ref":"#/components/parameters/Key"}]}},
            "/b":{"parameters":[{"in":"header","name":"X-Own"}],"post":{"parameters":[{"in":"query","name":"q"}]}}}}"##;
        let described = parse(text, None).unwrap();
        assert_eq!(described[0].headers, ["idempotency-key"]);
        assert_eq!(described[1].headers, ["x-own"]);
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
            let error = parse(text, None).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
