package io.admissiongateway.worker;

import java.util.regex.Pattern;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/**
 * Applies the patch of a policy, for the calls that follow it in a chain.
 *
 * <p>The object has to be the one that the gateway makes of the patch. It applies patches as kube-apiserver does
 * (evanphx/json-patch v4), which reads RFC 6902 loosely in places: {@code replace} of an absent member adds it, a
 * value that is absent is null, indices may be negative or signed, the text before the first slash is ignored.
 */
final class JsonPatch {
    private static final Pattern INDEX = Pattern.compile("[+-]?[0-9]{1,9}");

    private JsonPatch() {}

    /**
     * Returns {@code document}, which is changed in place, after all of {@code operations}.
     *
     * @throws IllegalArgumentException if one of them does not apply
     */
    static JsonNode apply(JsonNode document, JsonNode operations) {
        JsonNode result = document;
        for (JsonNode operation : operations) {
            result = apply(result, operation, operation.path("op").stringValue(""));
        }
        return result;
    }

    private static JsonNode apply(JsonNode document, JsonNode operation, String op) {
        JsonNode given = operation.get("value");
        JsonNode value = given == null ? JsonNodeFactory.instance.nullNode() : given.deepCopy();
        String path = text(operation, "path");
        switch (op) {
            case "add" -> add(document, path, value);
            case "remove" -> remove(document, path);
            case "replace" -> {
                return replace(document, path, value);
            }
            case "move" -> add(document, path, remove(document, text(operation, "from")));
            case "copy" -> add(document, path, find(document, text(operation, "from")).deepCopy());
            case "test" -> check(Json.same(path.isEmpty() ? document : find(document, path), value));
            default -> check(false);
        }
        return document;
    }

    private static void add(JsonNode document, String path, JsonNode value) {
        JsonNode parent = parent(document, path);
        String key = lastOf(path);
        if (parent instanceof ArrayNode items) {
            items.insert(key.equals("-") ? items.size() : index(key, items.size() + 1), value);
        } else {
            ((ObjectNode) parent).set(key, value);
        }
    }

    private static JsonNode replace(JsonNode document, String path, JsonNode value) {
        if (path.isEmpty()) {
            check(value.isContainer());
            return value;
        }
        JsonNode parent = parent(document, path);
        if (parent instanceof ArrayNode items) {
            items.set(index(lastOf(path), items.size()), value);
        } else {
            ((ObjectNode) parent).set(lastOf(path), value);
        }
        return document;
    }

    private static JsonNode remove(JsonNode document, String path) {
        JsonNode parent = parent(document, path);
        if (parent instanceof ArrayNode items) {
            return items.remove(index(lastOf(path), items.size()));
        }
        JsonNode removed = ((ObjectNode) parent).remove(lastOf(path));
        check(removed != null);
        return removed;
    }

    /** Returns the value at a path; null as JSON for a member that is absent from its object. */
    private static JsonNode find(JsonNode document, String path) {
        JsonNode parent = parent(document, path);
        if (parent instanceof ArrayNode items) {
            return items.get(index(lastOf(path), items.size()));
        }
        JsonNode found = parent.get(lastOf(path));
        return found == null ? JsonNodeFactory.instance.nullNode() : found;
    }

    /** Returns the object or list that the value at a path is in. */
    private static JsonNode parent(JsonNode document, String path) {
        int last = path.lastIndexOf('/');
        check(last >= 0);
        JsonNode node = document;
        for (int start = path.indexOf('/'); start < last; ) {
            int end = path.indexOf('/', start + 1);
            String part = path.substring(start + 1, end);
            node = node instanceof ArrayNode items ? items.get(index(part, items.size())) : node.path(unescape(part));
            start = end;
        }
        check(node.isContainer());
        return node;
    }

    private static String lastOf(String path) {
        return unescape(path.substring(path.lastIndexOf('/') + 1));
    }

    /** Returns the text of a part of a JSON Pointer (RFC 6901). */
    private static String unescape(String part) {
        return part.replace("~1", "/").replace("~0", "~");
    }

    /** Returns an index below {@code length}; a negative one counts from {@code length}. */
    private static int index(String part, int length) {
        check(INDEX.matcher(part).matches());
        int number = Integer.parseInt(part);
        int index = number < 0 ? number + length : number;
        check(index >= 0 && index < length);
        return index;
    }

    private static String text(JsonNode operation, String member) {
        JsonNode text = operation.path(member);
        check(text.isString());
        return text.stringValue();
    }

    private static void check(boolean applies) {
        if (!applies) {
            throw new IllegalArgumentException("the patch does not apply");
        }
    }
}
