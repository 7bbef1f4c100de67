package io.admissiongateway.samples;

import io.admissiongateway.worker.Review;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * Finding the pod in an object: a Pod itself, or the template in a workload. So a policy written for containers holds
 * for Deployments and CronJobs too, where its message reaches the person who made them rather than a controller's
 * event log.
 */
final class Pods {
    static final List<String> ALL_LISTS = List.of("containers", "initContainers", "ephemeralContainers");

    private static final List<String> TEMPLATE = List.of("spec", "template", "spec");

    private static final Map<String, List<String>> SPECS =
            Map.of(
                    "/Pod", List.of("spec"),
                    "/ReplicationController", TEMPLATE,
                    "apps/Deployment", TEMPLATE,
                    "apps/ReplicaSet", TEMPLATE,
                    "apps/StatefulSet", TEMPLATE,
                    "apps/DaemonSet", TEMPLATE,
                    "batch/Job", TEMPLATE,
                    "batch/CronJob", List.of("spec", "jobTemplate", "spec", "template", "spec"));

    /** Other subresources have no spec (status) or other kinds of object (scale, exec). */
    private static final Set<String> SUB_RESOURCES = Set.of("", "ephemeralcontainers", "resize");

    private Pods() {}

    /**
     * A pod spec, and its position in the object.
     *
     * @param path prefix of field paths, such as {@code spec} or {@code spec.template.spec}
     * @param spec a part of the review's object: a change of it changes the object
     * @param isPod whether the object is a Pod, whose spec is mostly immutable
     */
    record PodSpec(String path, ObjectNode spec, boolean isPod) {
        /** Returns the containers in these lists, such as {@code initContainers}. */
        List<Container> containers(List<String> lists) {
            List<Container> found = new ArrayList<>();
            for (String list : lists) {
                int index = 0;
                for (JsonNode container : spec.path(list)) {
                    found.add(new Container(path + "." + list + "[" + index++ + "]", (ObjectNode) container));
                }
            }
            return found;
        }
    }

    /** One container, and its path, such as {@code spec.initContainers[0]}. */
    record Container(String path, ObjectNode json) {
        String text(String name) {
            return json.path(name).stringValue("");
        }
    }

    /**
     * Returns the pod spec that a request creates or updates; null if it does not, and for an object that is on its
     * way out: it still gets updates (its finalizers are taken off), and a policy that denied those would keep it
     * from ever going.
     */
    static PodSpec specIn(Review review) {
        if (!isWrite(review) || !SUB_RESOURCES.contains(review.subResource())) {
            return null;
        }
        JsonNode kind = review.kind();
        List<String> keys = SPECS.get(kind.path("group").stringValue("") + "/" + kind.path("kind").stringValue(""));
        if (keys == null || isLeaving(review.object())) {
            return null;
        }
        JsonNode spec = review.object();
        for (String key : keys) {
            spec = spec.path(key);
        }
        return spec instanceof ObjectNode found ? new PodSpec(String.join(".", keys), found, keys.size() == 1) : null;
    }

    static boolean isWrite(Review review) {
        return review.operation().equals("CREATE") || review.operation().equals("UPDATE");
    }

    static boolean isLeaving(JsonNode object) {
        return !object.path("metadata").path("deletionTimestamp").stringValue("").isEmpty();
    }
}
