//! Results of a modern server for the revision of a legacy client.

use crate::Version;
use crate::bridge::MODERN_META;
use crate::bridge::members::{
    Member, filter_meta, member, mentions, rewrite, rewrite_items, rewrite_or_keep, write_text,
};
use bytes::Bytes;
use serde_json::{Value, json};

/// A result for a client of `version`, and whether content was lost.
pub fn result(method: &str, json: &Bytes, version: Version) -> (Bytes, bool) {
    let mut lost = false;
    let structured = match method {
        "tools/call" => unfit_structured_content(json, version),
        _ => None,
    };
    let converts = has_unknown_content(json, version);
    let translated = rewrite_or_keep(json, b"", |name, raw| match name {
        "resultType" | "ttlMs" | "cacheScope" => Member::Remove,
        "_meta" => filter_meta(raw, |key| key.starts_with(MODERN_META)),
        "structuredContent" if structured.is_some() => Member::Remove,
        "content" if method == "tools/call" && (converts || structured.is_some()) => {
            contents(raw, structured, version, &mut lost)
        }
        "messages" if method == "prompts/get" && converts => rewrite_items(raw, |message| {
            rewrite(message.as_bytes(), b"", |name, raw| match name {
                "content" => content(raw, version, &mut lost).map_or(Member::Keep, Member::Replace),
                _ => Member::Keep,
            })
        }),
        "tools" if method == "tools/list" && mentions(raw.as_bytes(), &["outputSchema"]) => {
            rewrite_items(raw, |tool| listed_tool(tool, version))
        }
        _ => Member::Keep,
    });
    // A tool result without content needs a place for the text of its structured content.
    match structured.filter(|_| member(json, "content").is_none()) {
        Some(value) => {
            let added = [b"\"content\":[", &text_block(value)[..], b"]"].concat();
            (rewrite_or_keep(&translated, &added, |_, _| Member::Keep), lost)
        }
        None => (translated, lost),
    }
}

/// `structuredContent` that the client's revision does not allow.
fn unfit_structured_content(json: &[u8], version: Version) -> Option<&str> {
    if version.has_any_structured_content() || !mentions(json, &["structuredContent"]) {
        return None;
    }
    member(json, "structuredContent").filter(|raw| !raw.starts_with('{'))
}

fn has_unknown_content(json: &[u8], version: Version) -> bool {
    let kinds = unknown_kinds(version);
    !kinds.is_empty() && mentions(json, kinds)
}

/// Kinds of content that a revision does not have.
fn unknown_kinds(version: Version) -> &'static [&'static str] {
    match version {
        Version::V2024_11_05 => &["resource_link", "audio"],
        Version::V2025_03_26 => &["resource_link"],
        _ => &[],
    }
}

fn contents(array: &str, structured: Option<&str>, version: Version, lost: &mut bool) -> Member {
    let rewritten = rewrite_items(array, |block| content(block, version, lost));
    let (Member::Replace(mut blocks), Some(value)) = (rewritten, structured) else {
        return rewrite_items(array, |block| content(block, version, lost));
    };
    if !has_text_of(&blocks, value) {
        blocks.pop();
        if blocks.len() > 1 {
            blocks.push(b',');
        }
        blocks.extend_from_slice(&text_block(value));
        blocks.push(b']');
    }
    Member::Replace(blocks)
}

/// Whether a text block contains the JSON of `value`.
fn has_text_of(blocks: &[u8], value: &str) -> bool {
    let blocks: Vec<Value> = serde_json::from_slice(blocks).unwrap_or_default();
    let value: Value = serde_json::from_str(value).unwrap_or_default();
    blocks.iter().any(|block| {
        let text = block["text"].as_str().filter(|_| block["type"] == "text");
        text.and_then(|text| serde_json::from_str::<Value>(text).ok()) == Some(value.clone())
    })
}

fn text_block(text: &str) -> Vec<u8> {
    let mut block = br#"{"type":"text","text":"#.to_vec();
    write_text(&mut block, text);
    block.push(b'}');
    block
}

/// A block that the client's revision does not have, as text. `None` for any other block.
fn content(block: &str, version: Version, lost: &mut bool) -> Option<Vec<u8>> {
    let kind: String = serde_json::from_str(member(block.as_bytes(), "type")?).ok()?;
    if !unknown_kinds(version).contains(&kind.as_str()) {
        return None;
    }
    *lost = true;
    let block: Value = serde_json::from_str(block).ok()?;
    let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
    Some(text_block(&match kind.as_str() {
        "resource_link" => {
            let (name, uri) = (text("name"), text("uri"));
            if name.is_empty() { uri } else { format!("{name}: {uri}") }
        }
        _ => format!(
            "[{} content, which this client cannot show: {}]",
            kind,
            text("mimeType")
        ),
    }))
}

/// A listed tool without an `outputSchema` that the client's revision does not allow.
fn listed_tool(tool: &str, version: Version) -> Option<Vec<u8>> {
    let schema = member(tool.as_bytes(), "outputSchema")?;
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    if version.has_any_structured_content() || schema["type"] == json!("object") {
        return None;
    }
    rewrite(tool.as_bytes(), b"", |name, _| match name {
        "outputSchema" => Member::Remove,
        _ => Member::Keep,
    })
}
