//! The OpenAPI document, and a page that shows it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use askama::Template;
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use crate::ask::{Ask, kept};
use crate::pages;
use crate::stored::REVALIDATE;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "kernelproof",
        description = "The index as JSON. Every page has a twin: add .json to its address, or ask for application/json. Times are \
                       in nanoseconds, sizes in bytes; ratios and shares are plain numbers. A quantity with an interval is an \
                       estimate with the low and the high end of its 95 % interval. Addresses in fields named href are pages.",
        license(name = "Apache-2.0 OR MIT"),
    ),
    paths(
        pages::home::page, pages::search::page, pages::resolve::page, pages::lists::operations,
        pages::operation::page, pages::cohort::page, pages::run::page, pages::compare::page,
        pages::implementation::page, pages::lists::devices, pages::device::page, pages::protocol::page,
        pages::reported::page, pages::methodology::page, pages::feed::atom, pages::files::file,
        pages::files::samples, pages::badges::implementation, pages::badges::operation, pages::submit::submit,
    ),
    modifiers(&Token),
)]
struct Document;

/// Submissions carry a token.
struct Token;

impl utoipa::Modify for Token {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::to_value(Document::openapi()).unwrap_or_default());

/// The page that shows the document.
#[derive(Debug, Serialize, Template)]
#[template(path = "api.html")]
pub(crate) struct ApiPage {
    /// Address of the document.
    pub twin: String,
    /// What the document says of itself.
    pub description: String,
    /// Everything that can be asked.
    pub operations: Vec<Operation>,
    /// The structures of answers.
    pub schemas: Vec<Schema>,
    /// Whether this site takes submissions.
    pub submissions: bool,
}

/// One thing that can be asked.
#[derive(Debug, Serialize)]
pub(crate) struct Operation {
    /// Its anchor on the page.
    pub id: String,
    /// `GET` or `POST`.
    pub method: String,
    /// Its address.
    pub path: String,
    /// In a few words.
    pub summary: String,
    /// In more words.
    pub description: Option<String>,
    /// Parameters.
    pub parameters: Vec<Field>,
    /// What is answered, by status code.
    pub responses: Vec<Field>,
}

/// A structure.
#[derive(Debug, Serialize)]
pub(crate) struct Schema {
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Its fields.
    pub fields: Vec<Field>,
}

/// A field, a parameter or an answer.
#[derive(Debug, Serialize)]
pub(crate) struct Field {
    /// Its name.
    pub name: String,
    /// Its type, in words.
    pub kind: String,
    /// The structure that it holds.
    pub schema: Option<String>,
    /// Whether it may be missing or null.
    pub optional: bool,
    /// What it is.
    pub description: String,
}

/// Answers `/openapi.json`.
pub(crate) async fn document(_: Ask) -> Response {
    let text = serde_json::to_vec_pretty(&*DOCUMENT).unwrap_or_default();
    kept("application/json", REVALIDATE, text.into())
}

/// Answers `/api`.
pub(crate) async fn page(ask: Ask) -> Response {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ask.reply(&ApiPage {
        twin: "/openapi.json".to_owned(),
        description: text(&DOCUMENT["info"]["description"]),
        operations: operations(&DOCUMENT),
        schemas: schemas(&DOCUMENT),
        submissions: ask.site.intake.is_some(),
    })
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let responses = operation["responses"].as_object().into_iter().flatten();
            found.push(Operation {
                id: format!("{method}{}", path.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")),
                method: method.to_uppercase(),
                path: path.clone(),
                summary: words(&operation["summary"]),
                description: operation["description"]
                    .as_str()
                    .map(str::to_owned)
                    .filter(|text| !text.starts_with("Answers")),
                parameters: parameters.map(parameter).collect(),
                responses: responses.map(|(status, response)| response_field(status, response)).collect(),
            });
        }
    }
    found
}

fn words(value: &Value) -> String {
    value.as_str().unwrap_or_default().trim().to_owned()
}

fn parameter(value: &Value) -> Field {
    let (kind, schema) = kind(&value["schema"]);
    Field {
        name: words(&value["name"]),
        kind: format!("{kind}, in the {}", words(&value["in"])),
        schema,
        optional: value["required"] != true,
        description: words(&value["description"]),
    }
}

fn response_field(status: &str, response: &Value) -> Field {
    let content = response["content"].as_object().and_then(|content| content.iter().next());
    let (media, schema) =
        content.map_or((String::new(), None), |(media, content)| (media.clone(), kind(&content["schema"]).1));
    Field {
        name: status.to_owned(),
        kind: media,
        schema,
        optional: false,
        description: words(&response["description"]),
    }
}

fn schemas(document: &Value) -> Vec<Schema> {
    let schemas = document["components"]["schemas"].as_object().into_iter().flatten();
    let of = |(name, schema): (&String, &Value)| {
        let required: BTreeSet<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let fields = schema["properties"].as_object().into_iter().flatten().map(|(field, value)| {
            let (kind, inner) = kind(value);
            Field {
                name: field.clone(),
                kind,
                schema: inner,
                optional: !required.contains(field.as_str()),
                description: words(&value["description"]),
            }
        });
        Schema { name: name.clone(), description: words(&schema["description"]), fields: fields.collect() }
    };
    schemas.map(of).collect()
}

/// The type of a schema in words, and the structure that it refers to.
fn kind(schema: &Value) -> (String, Option<String>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return (String::new(), Some(name.to_owned()));
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        let choices = schema[choice].as_array().into_iter().flatten();
        if let Some(found) = choices.map(kind).find(|(_, inner)| inner.is_some()) {
            return found;
        }
    }
    let name = match &schema["type"] {
        Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("any"),
        Value::String(name) => name,
        _ => "any",
    };
    if name != "array" {
        return (name.to_owned(), None);
    }
    let items = if schema["items"].is_object() { &schema["items"] } else { &schema["prefixItems"][0] };
    let (inner, reference) = kind(items);
    (if reference.is_some() { "list of".to_owned() } else { format!("list of {inner}") }, reference)
}
