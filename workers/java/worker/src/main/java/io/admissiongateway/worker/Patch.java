package io.admissiongateway.worker;

import java.util.Objects;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/**
 * A JSON Patch (RFC 6902) in the making; {@link Review#patch()} begins one.
 *
 * <p>Values are texts, numbers, booleans, {@code null}, maps, lists or JSON nodes.
 */
public final class Patch {
    private final ArrayNode operations = JsonNodeFactory.instance.arrayNode();

    Patch() {}

    /** Adds a member to an object, or inserts an item into a list; {@code -} as the last part appends. */
    public Patch add(String path, Object value) {
        return operation(JsonDiff.operation("add", path, json(value)));
    }

    /** Replaces what is at {@code path}. */
    public Patch replace(String path, Object value) {
        return operation(JsonDiff.operation("replace", path, json(value)));
    }

    /** Removes what is at {@code path}. */
    public Patch remove(String path) {
        return operation(JsonDiff.operation("remove", path, null));
    }

    /** Adds an operation as it is: {@code op}, {@code path}, and {@code value} or {@code from}. */
    public Patch operation(ObjectNode operation) {
        operations.add(Objects.requireNonNull(operation));
        return this;
    }

    /** The operations so far. */
    public ArrayNode operations() {
        return operations;
    }

    private static JsonNode json(Object value) {
        return value == null ? JsonNodeFactory.instance.nullNode() : Json.MAPPER.valueToTree(value);
    }
}
