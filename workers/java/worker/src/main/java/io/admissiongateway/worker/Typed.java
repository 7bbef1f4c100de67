package io.admissiongateway.worker;

import com.fasterxml.jackson.annotation.JsonInclude.Include;
import java.util.HashMap;
import java.util.Map;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/**
 * The object of a review as a Java class, such as fabric8's Pod, and back.
 *
 * <p>On the way back only what was changed is carried over: a class does not know every field that a newer API
 * server sends, and writes some that were never there.
 */
final class Typed {
    private static final JsonMapper MAPPER =
            JsonMapper.builder()
                    .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
                    .disable(DeserializationFeature.FAIL_ON_NULL_FOR_PRIMITIVES)
                    .changeDefaultPropertyInclusion(all -> all.withValueInclusion(Include.NON_NULL))
                    .build();

    /** By class, the JSON of what was last handed out or taken back. */
    private final Map<Class<?>, JsonNode> written = new HashMap<>();

    /** Returns {@code node} as an instance of {@code type}; throws a JacksonException if it is none. */
    static <T> T read(JsonNode node, Class<T> type) {
        return MAPPER.treeToValue(node, type);
    }

    /** As {@link #read}, and keeps in mind how it was. */
    <T> T handOut(JsonNode node, Class<T> type) {
        T value = read(node, type);
        written.put(type, MAPPER.valueToTree(value));
        return value;
    }

    /** Returns {@code original} with the changes that were made to {@code value} since it was handed out. */
    JsonNode takeBack(JsonNode original, Object value) {
        Class<?> type = value.getClass();
        JsonNode before = written.get(type);
        if (before == null) {
            before =
                    original.isObject()
                            ? MAPPER.valueToTree(read(original, type))
                            : JsonNodeFactory.instance.objectNode();
        }
        JsonNode after = MAPPER.valueToTree(value);
        JsonNode result = carryOver(original, before, after);
        written.put(type, after);
        return result;
    }

    private static JsonNode carryOver(JsonNode original, JsonNode before, JsonNode after) {
        if (Json.same(before, after)) {
            return original;
        }
        if (original instanceof ObjectNode object && before.isObject() && after.isObject()) {
            for (String name : before.propertyNames()) {
                if (!after.has(name)) {
                    object.remove(name);
                }
            }
            for (Map.Entry<String, JsonNode> member : after.properties()) {
                String name = member.getKey();
                JsonNode old = before.get(name);
                JsonNode known = object.get(name);
                if (old == null || known == null) {
                    if (old == null || !Json.same(old, member.getValue())) {
                        object.set(name, member.getValue().deepCopy());
                    }
                } else {
                    object.set(name, carryOver(known, old, member.getValue()));
                }
            }
            return object;
        }
        if (original instanceof ArrayNode array
                && array.size() == before.size()
                && before.size() == after.size()
                && before.isArray()
                && after.isArray()) {
            for (int index = 0; index < array.size(); index++) {
                array.set(index, carryOver(array.get(index), before.get(index), after.get(index)));
            }
            return array;
        }
        return after.deepCopy();
    }
}
