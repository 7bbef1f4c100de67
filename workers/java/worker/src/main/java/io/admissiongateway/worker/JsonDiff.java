package io.admissiongateway.worker;

import java.util.Map;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/**
 * Two JSON documents to the JSON Patch that changes the first into the second.
 *
 * <p>Only {@code add}, {@code remove} and {@code replace} are written. Items of lists are aligned by their common
 * head and tail only. Where naming each change would make a patch that is too much work to apply, whole members are
 * replaced.
 *
 * <p>No library does it: those that there are align lists in quadratic time, have no bounds, and need Jackson 2.
 *
 * <p>Source: RFC 6902; json_patch/diff.py of the Python SDK.
 */
final class JsonDiff {
    /** Limit of kube-apiserver for a user's JSON Patch. */
    private static final int MAX_OPERATIONS = 10_000;

    /** List items that change their index, summed over a patch. */
    private static final long MAX_SHIFTED = 100_000_000;

    /** Parts of all paths of a patch: fifty for each operation. */
    private static final long MAX_PATH_PARTS = 500_000;

    /** Characters of all paths of a patch. An answer is not longer. */
    static final int MAX_PATH_CHARS = Outcome.MAX_MESSAGE_BYTES;

    /** Levels at which values are compared as a whole before their parts, also of lists in lists. */
    private static final int SEARCHED_LEVELS = 8;

    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private final ArrayNode operations = NODES.arrayNode();

    /** Levels below which values are replaced whole. */
    private final int levels;

    /** The path of the values that are compared. */
    private final StringBuilder path = new StringBuilder();

    private long shifted;
    private long parts;
    private long characters;

    private JsonDiff(int levels) {
        this.levels = levels;
    }

    /** Returns the operations that turn {@code before} into {@code after}; they share values with {@code after}. */
    static ArrayNode diff(JsonNode before, JsonNode after) {
        // Each change by itself; else whole members of the document; else the document.
        for (int levels : new int[] {Integer.MAX_VALUE, 1}) {
            JsonDiff script = new JsonDiff(levels);
            if (script.value(before, after, 0, 0)) {
                return script.operations;
            }
        }
        return NODES.arrayNode().add(operation("replace", "", after));
    }

    /**
     * Compares two values that are {@code level} levels deep, of which {@code lists} are lists. Returns whether the
     * patch is within its bounds, as do the methods below.
     */
    private boolean value(JsonNode before, JsonNode after, int level, int lists) {
        if (level < SEARCHED_LEVELS && Json.same(before, after)) {
            return true;
        }
        if (level < levels && before instanceof ObjectNode old && after instanceof ObjectNode changed) {
            return members(old, changed, level + 1, lists);
        }
        if (level < levels
                && lists < SEARCHED_LEVELS
                && before instanceof ArrayNode old
                && after instanceof ArrayNode changed) {
            return items(old, changed, level + 1, lists + 1);
        }
        return Json.same(before, after) || note("replace", after, 0);
    }

    private boolean members(ObjectNode before, ObjectNode after, int level, int lists) {
        int length = path.length();
        for (Map.Entry<String, JsonNode> member : before.properties()) {
            path.append('/').append(escape(member.getKey()));
            JsonNode changed = after.get(member.getKey());
            if (changed == null ? !note("remove", null, 0) : !value(member.getValue(), changed, level, lists)) {
                return false;
            }
            path.setLength(length);
        }
        for (Map.Entry<String, JsonNode> member : after.properties()) {
            path.append('/').append(escape(member.getKey()));
            if (!before.has(member.getKey()) && !note("add", member.getValue(), 0)) {
                return false;
            }
            path.setLength(length);
        }
        return true;
    }

    private boolean items(ArrayNode before, ArrayNode after, int level, int lists) {
        int shorter = Math.min(before.size(), after.size());
        int head = 0;
        while (head < shorter && Json.same(before.get(head), after.get(head))) {
            head++;
        }
        int tail = 0;
        while (tail < shorter - head
                && Json.same(before.get(before.size() - 1 - tail), after.get(after.size() - 1 - tail))) {
            tail++;
        }
        int length = path.length();
        for (int index = head; index < shorter - tail; index++) {
            path.append('/').append(index);
            if (!value(before.get(index), after.get(index), level, lists)) {
                return false;
            }
            path.setLength(length);
        }
        // From the end, so that earlier indices remain valid.
        for (int index = before.size() - tail - 1; index >= shorter - tail; index--) {
            path.append('/').append(index);
            if (!note("remove", null, tail)) {
                return false;
            }
            path.setLength(length);
        }
        for (int index = shorter - tail; index < after.size() - tail; index++) {
            path.append('/').append(index);
            if (!note("add", after.get(index), tail)) {
                return false;
            }
            path.setLength(length);
        }
        return true;
    }

    /** Adds an operation at the path, by which {@code shifts} items of a list change their index. */
    private boolean note(String op, JsonNode value, int shifts) {
        shifted += shifts;
        parts += path.chars().filter(character -> character == '/').count();
        characters += path.length();
        if (operations.size() == MAX_OPERATIONS
                || shifted > MAX_SHIFTED
                || parts > MAX_PATH_PARTS
                || characters > MAX_PATH_CHARS) {
            return false;
        }
        operations.add(operation(op, path.toString(), value));
        return true;
    }

    /** Returns one operation of a patch; one without a value where {@code value} is null. */
    static ObjectNode operation(String op, String path, JsonNode value) {
        ObjectNode operation = NODES.objectNode().put("op", op).put("path", path);
        if (value != null) {
            operation.set("value", value);
        }
        return operation;
    }

    /** Returns {@code key} as a token of a JSON Pointer (RFC 6901). */
    private static String escape(String key) {
        return key.replace("~", "~0").replace("/", "~1");
    }
}
