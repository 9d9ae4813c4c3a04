use super::*;
use serde_json::json;

fn problems(schema: &Value, value: &Value) -> Option<String> {
    let schema = Schema::compile(schema).unwrap();
    check::check(&schema, value, value.to_string().len()).err()
}

/// Each schema with values that fit it and values that do not.
#[test]
fn keywords_restrict_values() {
    let table = [
        (json!(true), vec![json!(1)], vec![]),
        (json!(false), vec![], vec![json!(1)]),
        (
            json!({ "type": "integer" }),
            vec![json!(1), json!(1.0), json!(u64::MAX)],
            vec![json!(1.5), json!("1")],
        ),
        (
            json!({ "type": ["string", "null"] }),
            vec![json!("a"), json!(null)],
            vec![json!(0), json!({})],
        ),
        (
            json!({ "enum": [1, { "a": 2.0 }] }),
            vec![json!(1.0), json!({ "a": 2 })],
            vec![json!(2), json!({})],
        ),
        (json!({ "const": [1] }), vec![json!([1.0])], vec![json!([2]), json!(1)]),
        (
            json!({ "minimum": i64::MAX }),
            vec![json!(u64::MAX), json!("a")],
            vec![json!(i64::MAX - 1)],
        ),
        (json!({ "maximum": 1.5 }), vec![json!(1)], vec![json!(2)]),
        (json!({ "exclusiveMinimum": 1 }), vec![json!(1.1)], vec![json!(1)]),
        (json!({ "exclusiveMaximum": 1 }), vec![json!(0)], vec![json!(1.0)]),
        (
            json!({ "multipleOf": 0.01 }),
            vec![json!(0.07), json!(19.99)],
            vec![json!(0.075)],
        ),
        (
            json!({ "minLength": 2, "maxLength": 3 }),
            vec![json!("éé")],
            vec![json!("é"), json!("abcd")],
        ),
        (
            json!({ "pattern": "^a/\\d+$" }),
            vec![json!("a/12"), json!(1)],
            vec![json!("a/x")],
        ),
        (
            json!({ "pattern": "(?<=a)b" }),
            vec![json!("unknown to the engine")],
            vec![],
        ),
        (
            json!({ "items": { "type": "null" }, "maxItems": 1 }),
            vec![json!([null])],
            vec![json!([1]), json!([null, null])],
        ),
        (
            json!({ "prefixItems": [true, { "type": "null" }], "items": false }),
            vec![json!([1, null])],
            vec![json!([1, 1]), json!([1, null, 1])],
        ),
        (
            json!({ "items": [true], "additionalItems": false }),
            vec![json!([1])],
            vec![json!([1, 1])],
        ),
        (
            json!({ "contains": { "const": 1 }, "maxContains": 1 }),
            vec![json!([1, 2])],
            vec![json!([2]), json!([1, 1])],
        ),
        (
            json!({ "uniqueItems": true }),
            vec![json!([1, "1", [1]])],
            vec![json!([1, 1.0]), json!([{ "a": 1, "b": 2 }, { "b": 2, "a": 1 }])],
        ),
        (
            json!({ "patternProperties": { "^x": { "type": "null" } }, "additionalProperties": false }),
            vec![json!({ "xa": null })],
            vec![json!({ "xa": 1 }), json!({ "a": 1 })],
        ),
        (
            json!({ "propertyNames": { "maxLength": 1 }, "minProperties": 1 }),
            vec![json!({ "a": 1 })],
            vec![json!({}), json!({ "ab": 1 })],
        ),
        (
            json!({ "dependentRequired": { "a": ["b"] } }),
            vec![json!({ "b": 1 }), json!({ "a": 1, "b": 1 })],
            vec![json!({ "a": 1 })],
        ),
        (
            json!({ "oneOf": [{ "minimum": 2 }, { "maximum": 3 }] }),
            vec![json!(1), json!(4)],
            vec![json!(2)],
        ),
        (json!({ "not": { "type": "null" } }), vec![json!(1)], vec![json!(null)]),
        (
            json!({ "if": { "minimum": 5 }, "then": { "multipleOf": 5 }, "else": { "maximum": 3 } }),
            vec![json!(10), json!(2)],
            vec![json!(6), json!(4)],
        ),
        (
            json!({ "$defs": { "a/b": { "type": "null" } }, "items": { "$ref": "#/$defs/a~1b" } }),
            vec![json!([null])],
            vec![json!([1])],
        ),
        (
            json!({ "$defs": { "a": { "$anchor": "here", "type": "null" } }, "$ref": "#here" }),
            vec![json!(null)],
            vec![json!(1)],
        ),
        (
            json!({ "properties": { "next": { "$ref": "#" } }, "required": ["n"] }),
            vec![json!({ "n": 1, "next": { "n": 2 } })],
            vec![json!({ "n": 1, "next": {} })],
        ),
        (
            json!({ "format": "email", "x-own": 1, "unknown": {} }),
            vec![json!("no address")],
            vec![],
        ),
    ];
    for (schema, good, bad) in table {
        for value in good {
            assert_eq!(problems(&schema, &value), None, "{schema} {value}");
        }
        for value in bad {
            assert!(problems(&schema, &value).is_some(), "{schema} {value}");
        }
    }
}

#[test]
fn invalid_schemas_are_reported_with_their_location() {
    for (schema, expected) in [
        (json!({ "type": "strng" }), "`/type` must be one of null, boolean"),
        (
            json!({ "properties": { "a/b": 1 } }),
            "`/properties/a~1b` must be an object or a boolean",
        ),
        (json!({ "required": "a" }), "`/required` must be an array of strings"),
        (json!({ "anyOf": {} }), "`/anyOf` must be an array"),
        (
            json!({ "items": { "minLength": -1 } }),
            "`/items/minLength` must be a count",
        ),
        (
            json!({ "$ref": "#/$defs/a" }),
            "`/$ref` refers to `#/$defs/a`, which is not in the schema",
        ),
    ] {
        let why = Schema::compile(&schema).unwrap_err();
        assert!(why.starts_with(expected), "{why}");
    }
}

/// Neither a schema that refers to itself nor one that branches at every level takes more than its bound.
#[test]
fn work_is_bounded() {
    let refused = problems(&json!({ "$ref": "#" }), &json!({})).unwrap();
    assert!(refused.contains("nested too deeply"), "{refused}");
    let branching = json!({ "anyOf": [{ "properties": { "a": { "$ref": "#" } }, "required": ["b"] },
                                      { "properties": { "a": { "$ref": "#" } }, "required": ["c"] }] });
    let deep = (0..60).fold(json!({}), |inner, _| json!({ "a": inner }));
    let start = std::time::Instant::now();
    assert!(problems(&branching, &deep).is_some());
    let many: Vec<_> = (0..100_000).collect();
    assert_eq!(problems(&json!({ "uniqueItems": true }), &json!(many)), None);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn schemas_that_allow_every_object_cost_nothing() {
    for (schema, open) in [
        (json!({ "type": "object", "properties": {}, "title": "T" }), true),
        (json!({ "type": "object", "properties": { "a": true } }), false),
        (json!({ "type": "object", "additionalProperties": false }), false),
    ] {
        assert_eq!(Schema::compile(&schema).unwrap().allows_every_object, open, "{schema}");
    }
}

#[test]
fn choice_of_alternatives_is_described_by_its_values() {
    let schema = json!({
        "anyOf": [{ "$ref": "#/$defs/sort" }, { "type": "null" }],
        "$defs": { "sort": { "oneOf": [{ "type": "string", "enum": ["name", "date"] }, { "const": "price" }] } },
    });
    assert_eq!(problems(&schema, &json!("price")), None);
    assert_eq!(
        problems(&schema, &json!("colour")).unwrap(),
        r#"- "colour" is not one of "name", "date", "price", null"#
    );
    // An alternative that names no values, and one that refers to itself without end.
    let number = json!({ "anyOf": [{ "const": "all" }, { "type": "integer" }] });
    assert_eq!(
        problems(&number, &json!("some")).unwrap(),
        r#"- no alternative fits: expected "all", found "some"; or expected integer, found "some""#
    );
    let endless = json!({ "anyOf": [{ "$ref": "#" }, { "const": 1 }] });
    assert!(
        problems(&endless, &json!(2))
            .unwrap()
            .starts_with("- no alternative fits")
    );
}
